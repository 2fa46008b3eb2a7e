"""A web server on localhost that behaves as a test tells it to, and records the requests."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tests.storage.reading import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Handler = BaseHTTPRequestHandler
Behaviour = "Callable[[Handler, bytes], None]"


@dataclass
class WebServer:
    """What the server serves, and a record of what happened."""

    address: str = ""
    """`http://host:port`, without a slash at the end."""
    objects: dict[str, bytes] = field(default_factory=dict)
    """Content by decoded path, without the leading slash."""
    behaviours: dict[str, list[Any]] = field(default_factory=dict)
    """By path, what answers the next requests in place of a plain answer, in order."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Raw target and headers of each request."""
    bodies: Counter[str] = field(default_factory=Counter)
    """Number of whole bodies sent, by path."""
    has_ranges: bool = False
    """Whether range requests are answered with parts, and with a strong ETag."""
    num_bytes: int = 0
    """Bytes of bodies that were sent by plain answers."""
    delay_s: float = 0.0
    """Wait before each answer, in seconds."""
    waits_for: int = 0
    """Hold answers back until this many requests have been open at the same time."""
    most_at_once: int = 0
    """Largest number of requests that have been open at the same time."""
    running: int = 0
    """Number of requests that are open now."""

    def url(self, path: str) -> str:
        return f"{self.address}/{path}"


@contextmanager
def web_server() -> Iterator[WebServer]:
    """Serve until the block ends."""
    state = WebServer()
    lock = threading.Lock()

    @contextmanager
    def counted(path: str, num_bytes: int, size: int) -> Iterator[None]:
        """Count a body before it is sent, so that the client finds it counted; undo that if sending fails."""

        def count(sign: int) -> None:
            with lock:
                state.num_bytes += sign * num_bytes
                state.bodies[path] += sign * (num_bytes == size)

        count(1)
        try:
            yield
        except OSError:
            count(-1)
            raise

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            path = unquote(self.path.split("?", 1)[0])[1:]
            with lock:
                state.requests.append((self.path, dict(self.headers)))
                behaviours = state.behaviours.get(path)
                behaviour = behaviours.pop(0) if behaviours else send
                state.running += 1
                state.most_at_once = max(state.most_at_once, state.running)
            try:
                time.sleep(state.delay_s)
                wait_until(lambda: state.most_at_once >= state.waits_for)
                self.answer(path, behaviour)
            finally:
                with lock:
                    state.running -= 1

        def answer(self, path: str, behaviour: Any) -> None:
            content = state.objects.get(path)
            if behaviour is not send:
                behaviour(self, content or b"")
            elif content is None:
                status(404)(self, b"")
            elif not state.has_ranges:
                with counted(path, len(content), len(content)):
                    send(self, content)
            elif (span := asked_span(self, content)) is None:
                status(416)(self, b"")
            else:
                with counted(path, span[1] - span[0], len(content)):
                    send_part(self, content, *span)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # some tests have clients that disconnect in the middle

    server = Server(("127.0.0.1", 0), Answers)
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def send(handler: Handler, content: bytes) -> None:
    """Answer with the whole content, as a plain server does."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def asked_range(handler: Handler) -> re.Match[str] | None:
    """Return a match of the requested range, with its first and last byte as groups; None if none is requested."""
    return re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", ""))


def asked_span(handler: Handler, content: bytes) -> tuple[int, int] | None:
    """Return the bounds of the requested bytes, `stop` exclusive; None if the content has none of them."""
    asked = asked_range(handler)
    if not asked:
        return 0, len(content)
    first, stop = int(asked[1]), min(len(content), int(asked[2] or len(content)) + 1)
    return (first, stop) if first < len(content) else None


def send_part(handler: Handler, content: bytes, first: int, stop: int) -> None:
    """Answer as a server does that supports ranges."""
    is_part = asked_range(handler) is not None
    handler.send_response(206 if is_part else 200)
    handler.send_header("ETag", tag(content))
    handler.send_header("Content-Length", str(stop - first))
    if is_part:
        handler.send_header("Content-Range", f"bytes {first}-{stop - 1}/{len(content)}")
    handler.end_headers()
    handler.wfile.write(content[first:stop])


def tag(content: bytes) -> str:
    """Return the strong ETag of some content."""
    return f'"{hashlib.md5(content).hexdigest()}"'


def status(code: int, **headers: str) -> Callable[[Handler, bytes], None]:
    """Answer with a status code, and a page that shows it."""

    def behaviour(handler: Handler, _content: bytes) -> None:
        page = f"<html>{code}</html>".encode()
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(page)))
        handler.end_headers()
        handler.wfile.write(page)

    return behaviour


def cut(at: int, **headers: str) -> Callable[[Handler, bytes], None]:
    """Promise the whole body, send `at` bytes and hang up."""

    def behaviour(handler: Handler, content: bytes) -> None:
        handler.send_response(200)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:at])
        handler.wfile.flush()
        handler.close_connection = True

    return behaviour


def resumed(etag: str, *, start: int | None = None, answer_etag: str | None = None) -> Callable[[Handler, bytes], None]:
    """Answer a range request that carries `etag`; optionally with a wrong start or a wrong tag."""

    def behaviour(handler: Handler, content: bytes) -> None:
        if handler.headers.get("If-Range") != etag or not handler.headers.get("Range", "").endswith("-"):
            send(handler, content)
            return
        asked = int(handler.headers["Range"].removeprefix("bytes=")[:-1])
        first = asked if start is None else start
        handler.send_response(206)
        handler.send_header("ETag", answer_etag or etag)
        handler.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - first))
        handler.end_headers()
        handler.wfile.write(content[first:])

    return behaviour


def hold(started: threading.Event, go_on: threading.Event, at: int) -> Callable[[Handler, bytes], None]:
    """Send `at` bytes, set `started`, and send the rest once `go_on` is set."""

    def behaviour(handler: Handler, content: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:at])
        handler.wfile.flush()
        started.set()
        go_on.wait(150)  # not forever, so that a failing test ends
        handler.wfile.write(content[at:])

    return behaviour
