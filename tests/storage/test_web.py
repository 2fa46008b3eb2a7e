"""Shards from a web server: names, failures, retries and resumed downloads."""

from __future__ import annotations

import socket
import traceback
from typing import TYPE_CHECKING

import pytest

from tests.storage.conftest import QUICK
from tests.storage.reading import content, shards, unfinished
from tests.storage.web_server import Handler, WebServer, cut, resumed, send, status
from wids.errors import FetchError, ShardMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from wids.storage import Storage

DATA = bytes(range(256)) * 20_000
ETAG = '"version-1"'


@pytest.fixture
def storage(make_storage: Callable[..., Storage], server: WebServer) -> Storage:
    server.objects["a.tar"] = DATA
    return make_storage()


def refused(storage: Storage, server: WebServer, error: type[Exception] = FetchError, **facts: object) -> str:
    """Return the message of the error that opening `a.tar` raises."""
    with pytest.raises(error) as caught:
        storage.open({"url": server.url("a.tar"), **facts})
    return str(caught.value)


def test_a_shard_is_fetched_once(storage: Storage, server: WebServer) -> None:
    shard = {"url": server.url("a.tar")}

    assert content(storage.open(shard)) == content(storage.open(shard)) == DATA
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", ["a b.tar", "it's.tar", 'say "hi".tar', "a;touch x.tar", "日本.tar", "a%b.tar"])
def test_names_with_special_characters_are_fetched(name: str, storage: Storage, server: WebServer) -> None:
    server.objects[name] = b"content of " + name.encode()

    source = storage.open({"url": server.url(name.replace("%", "%25"))})

    assert content(source) == b"content of " + name.encode()


def test_same_basenames_in_different_folders_are_different_shards(storage: Storage, server: WebServer) -> None:
    server.objects |= {"x/0.tar": b"two samples", "y/0.tar": b"five samples"}

    x, y = (storage.open({"url": server.url(path)}) for path in ("x/0.tar", "y/0.tar"))

    assert (content(x), content(y)) == (b"two samples", b"five samples")


@pytest.mark.parametrize("code", [404, 403, 410, 401, 400])
def test_a_permanent_status_is_an_error_without_another_attempt(
    code: int, storage: Storage, server: WebServer, cache_dir: Path
) -> None:
    server.behaviours["a.tar"] = [status(code)]

    message = refused(storage, server)

    assert str(code) in message
    assert len(server.requests) == 1
    assert not shards(cache_dir)


@pytest.mark.parametrize("code", [500, 502, 503, 429, 408])
def test_a_temporary_status_is_tried_again(code: int, storage: Storage, server: WebServer) -> None:
    server.behaviours["a.tar"] = [status(code), status(code)]

    assert content(storage.open({"url": server.url("a.tar")})) == DATA
    assert len(server.requests) == 3


def test_an_error_is_raised_after_the_last_attempt(storage: Storage, server: WebServer, cache_dir: Path) -> None:
    server.behaviours["a.tar"] = [status(503)] * 20

    message = refused(storage, server)

    assert f"{QUICK.attempts} attempts failed" in message
    assert "503" in message
    assert len(server.requests) == QUICK.attempts
    assert not shards(cache_dir)


def test_a_refused_connection_is_tried_again_and_then_an_error(storage: Storage) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # without listen(): nobody else gets this port, and connections are refused
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.tar"
        with pytest.raises(FetchError, match=f"{QUICK.attempts} attempts failed.*no answer"):
            storage.open({"url": url})


@pytest.mark.parametrize("at", [0, 1, 100_000, len(DATA) - 1])
def test_a_truncated_body_is_fetched_again(at: int, storage: Storage, server: WebServer) -> None:
    server.behaviours["a.tar"] = [cut(at)]

    assert content(storage.open({"url": server.url("a.tar")})) == DATA
    assert "Range" not in server.requests[1][1]


def test_a_body_that_is_always_truncated_never_becomes_a_shard(
    storage: Storage, server: WebServer, cache_dir: Path
) -> None:
    server.behaviours["a.tar"] = [cut(1000)] * 20

    refused(storage, server)

    assert not shards(cache_dir)
    assert not unfinished(cache_dir)
    server.behaviours.clear()
    assert content(storage.open({"url": server.url("a.tar")})) == DATA


def test_a_truncated_body_with_a_strong_etag_is_resumed(storage: Storage, server: WebServer) -> None:
    import hashlib

    md5 = hashlib.md5(DATA).hexdigest()
    server.behaviours["a.tar"] = [cut(3_000_000, ETag=ETAG), resumed(ETAG)]

    source = storage.open({"url": server.url("a.tar"), "filesize": len(DATA), "md5sum": md5})

    assert content(source) == DATA
    first = int(server.requests[1][1]["Range"].removeprefix("bytes=").removesuffix("-"))
    assert 0 < first <= 3_000_000
    assert server.requests[1][1]["If-Range"] == ETAG


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(send, id="whole body"),
        pytest.param(resumed('"version-2"'), id="object replaced"),
    ],
)
def test_a_whole_body_in_response_to_a_resume_starts_again(
    answer: Callable[[Handler, bytes], None], storage: Storage, server: WebServer
) -> None:
    server.behaviours["a.tar"] = [cut(3_000_000, ETag=ETAG), answer]

    assert content(storage.open({"url": server.url("a.tar")})) == DATA


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(resumed(ETAG, start=0), id="from the start"),
        pytest.param(resumed(ETAG, start=17), id="from elsewhere"),
        pytest.param(resumed(ETAG, answer_etag='"version-2"'), id="of another object"),
        pytest.param(status(416), id="not satisfiable"),
    ],
)
def test_a_wrong_response_to_a_resume_is_rejected(
    answer: Callable[[Handler, bytes], None], storage: Storage, server: WebServer
) -> None:
    server.behaviours["a.tar"] = [cut(3_000_000, ETag=ETAG), answer]

    assert content(storage.open({"url": server.url("a.tar")})) == DATA


def test_a_weak_etag_is_not_used_to_resume(storage: Storage, server: WebServer) -> None:
    server.behaviours["a.tar"] = [cut(3_000_000, ETag="W/" + ETAG)]

    assert content(storage.open({"url": server.url("a.tar")})) == DATA
    assert "Range" not in server.requests[1][1]


def test_resumes_that_make_progress_are_not_limited_by_the_number_of_attempts(
    make_storage: Callable[..., Storage], server: WebServer
) -> None:
    server.objects["a.tar"] = big = DATA * 4

    def cut_resumed(handler: Handler, content: bytes) -> None:
        first = int(handler.headers["Range"].removeprefix("bytes=")[:-1])
        handler.send_response(206)
        handler.send_header("ETag", ETAG)
        handler.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - first))
        handler.end_headers()
        handler.wfile.write(content[first : first + 2_200_000])
        handler.close_connection = True

    server.behaviours["a.tar"] = [cut(2_200_000, ETag=ETAG), *[cut_resumed] * 30]

    assert content(make_storage().open({"url": server.url("a.tar")})) == big
    assert len(server.requests) > QUICK.attempts


def test_a_wrong_size_is_refused_after_a_second_try(storage: Storage, server: WebServer, cache_dir: Path) -> None:
    message = refused(storage, server, ShardMismatchError, filesize=len(DATA) + 1)

    assert f"{len(DATA)} bytes" in message
    assert f"says {len(DATA) + 1}" in message
    assert "widsindex update --recount" in message
    assert len(server.requests) == 2
    assert not shards(cache_dir)
    assert not unfinished(cache_dir)


def test_a_wrong_checksum_is_refused(make_storage: Callable[..., Storage], server: WebServer, cache_dir: Path) -> None:
    server.objects["a.tar"] = DATA

    message = refused(make_storage(checksum="md5"), server, ShardMismatchError, filesize=len(DATA), md5sum="0" * 32)

    assert "MD5" in message
    assert not shards(cache_dir)


def test_a_shard_damaged_in_transit_is_fetched_again(make_storage: Callable[..., Storage], server: WebServer) -> None:
    import hashlib

    server.objects["a.tar"] = DATA
    server.behaviours["a.tar"] = [lambda handler, content: send(handler, b"x" + content[1:])]
    shard = {"url": server.url("a.tar"), "md5sum": hashlib.md5(DATA).hexdigest().upper()}

    assert content(make_storage(checksum="md5").open(shard)) == DATA


def test_nothing_is_compared_with_checksum_none(make_storage: Callable[..., Storage], server: WebServer) -> None:
    server.objects["a.tar"] = DATA
    shard = {"url": server.url("a.tar"), "filesize": 1, "md5sum": "0" * 32}

    assert content(make_storage(checksum="none").open(shard)) == DATA


def test_a_changed_size_in_the_descriptor_fetches_again(storage: Storage, server: WebServer) -> None:
    storage.open({"url": server.url("a.tar"), "filesize": len(DATA)})
    server.objects["a.tar"] = DATA + b"more"

    source = storage.open({"url": server.url("a.tar"), "filesize": len(DATA) + 4})

    assert content(source) == DATA + b"more"


def test_a_redirect_is_followed(storage: Storage, server: WebServer) -> None:
    server.behaviours["old.tar"] = [status(302, Location=server.url("a.tar"))]

    assert content(storage.open({"url": server.url("old.tar")})) == DATA


def test_credentials_of_the_url_are_sent_as_a_header(storage: Storage, server: WebServer) -> None:
    storage.open({"url": server.url("a.tar").replace("http://", "http://me:p%40ss@")})

    assert server.requests[0][1]["Authorization"] == "Basic bWU6cEBzcw=="


def test_bodies_are_requested_without_content_encoding(storage: Storage, server: WebServer) -> None:
    storage.open({"url": server.url("a.tar")})

    assert server.requests[0][1]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param([status(404)], id="not there"),
        pytest.param([status(503)] * 20, id="attempts end"),
        pytest.param([cut(10)] * 20, id="cut"),
        pytest.param([status(302, Location="/a.tar?sig=hunter2")] * 50, id="redirects"),
        pytest.param([status(302, Location="ftp://me:hunter2@host/a.tar")] * 50, id="redirected to another scheme"),
    ],
)
def test_errors_logs_and_file_names_have_no_secrets(
    behaviour: list[object], storage: Storage, server: WebServer, cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="wids")
    server.behaviours["a.tar"] = behaviour
    url = server.url("a.tar").replace("http://", "http://me:hunter2@") + "?sig=hunter2"

    with pytest.raises(FetchError) as caught:
        storage.open({"url": url})

    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in caplog.text
    assert not [path for path in cache_dir.rglob("*") if "hunter2" in path.name]


@pytest.mark.parametrize("url", ["http://", "http://[/a.tar", "http://host:port/a.tar", "https:///a.tar"])
def test_an_invalid_url_is_refused(url: str, storage: Storage) -> None:
    with pytest.raises(FetchError, match="spelled right"):
        storage.open({"url": url})


def test_a_proxy_of_the_environment_is_used(
    make_storage: Callable[..., Storage], server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.address.replace("http://", "http://me:pw@"))
    monkeypatch.setenv("no_proxy", "localhost")
    # A proxy is asked for the whole URL, of which the server takes the first character for the slash of a path.
    server.objects["ttp://data.example/a.tar"] = DATA

    assert content(make_storage().open({"url": "http://data.example/a.tar"})) == DATA
    target, headers = server.requests[0]
    assert target == "http://data.example/a.tar"
    assert headers["Proxy-Authorization"] == "Basic bWU6cHc="
