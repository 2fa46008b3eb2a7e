"""http and https: one urllib3 pool per process, exact lengths, and transfers that resume where they were cut.

A body is accepted only when its length is the `Content-Length`. A transfer that was cut is resumed with `Range`, `If-Range`
and a strong ETag (RFC 9110, sections 13.1.5 and 14.2), so that the server itself refuses to mix two objects. The response is
checked all the same: it must have status 206, exactly the requested range, and the same ETag.
"""

from __future__ import annotations

import base64
import logging
import re
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from wids.errors import FetchError
from wids.storage.ranges import Piece, WholeOnlyError
from wids.storage.retry import PassingError
from wids.storage.transport import CHUNK_BYTES, Body, ResumePoint

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    import urllib3

    from wids.storage.locations import Location

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 20.0
_READ_TIMEOUT_S = 60.0
"""Seconds without a single byte; a slow body may take as long as it needs."""
_CONNECTIONS_PER_HOST = 32
_MOST_REDIRECTS = 10

_PASSING_STATUS = frozenset([HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS])
_REFUSED_STATUS = frozenset([HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED])
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class WebServers:
    """The transport of http and https; belongs to the process that made it."""

    def __init__(self) -> None:
        self._managers: dict[str, urllib3.PoolManager] = {}

    @contextmanager
    def open(self, location: Location, resume: ResumePoint | None = None) -> Iterator[Body]:
        """Request an object, or the rest of it."""
        headers = {}
        if resume is not None:
            headers = {"Range": f"bytes={resume.start}-", "If-Range": resume.etag}
        response = self.request(location, headers)
        try:
            if resume is not None and response.status == HTTPStatus.PARTIAL_CONTENT:
                size = _resumed_size(response, resume)
                yield Body(_chunks(response), size, resume.start, resume.etag)
            elif response.status == HTTPStatus.OK:
                yield Body(_chunks(response), _content_length(response), etag=strong_etag(response))
            else:
                raise status_error(response, location.name)
        finally:
            # A connection on which a part of the body is still unread cannot be reused.
            response.close()
            response.release_conn()

    def read_range(self, location: Location, start: int, stop: int) -> Piece:
        """Read a part of an object; the response must have status 206, the requested range and the exact length."""
        response = self.request(location, {"Range": f"bytes={start}-{stop - 1}"})
        try:
            if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start == 0:
                return Piece(b"", 0, _tag(response))  # of an empty object no range can be satisfied
            if response.status == HTTPStatus.OK:
                raise WholeOnlyError(
                    f"{location.name}: the server sends the whole object where a part is asked for; "
                    "set access to 'download'"
                )
            if response.status != HTTPStatus.PARTIAL_CONTENT:
                raise status_error(response, location.name)
            size = _part_size(response, start, stop)
            data = b"".join(_chunks(response))
            if len(data) != min(stop, size) - start:
                raise PassingError(f"{len(data)} bytes came, expected {min(stop, size) - start}")
            return Piece(data, size, _tag(response))
        finally:
            response.close()
            response.release_conn()

    def request(self, location: Location, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        """Send a GET request; the caller reads and closes the response.

        Raises:
            FetchError: The URL is malformed or redirected too often, or the server's certificate is not valid.
            PassingError: The server cannot be reached, or does not respond.
        """
        import urllib3

        # connect and read are False, not 0, so that urllib3 raises the cause itself, instead of an error with the URL in it.
        redirects_only = urllib3.Retry(
            total=None, connect=False, read=False, redirect=_MOST_REDIRECTS, status=0, other=0
        )
        url, credentials = _split_credentials(location.url)
        _log.debug("GET %s %s", location.name, dict(headers))
        try:
            return self._manager_for(url).request(
                "GET",
                url,
                headers={"Accept-Encoding": "identity", **credentials, **headers},
                retries=redirects_only,
                preload_content=False,
                decode_content=False,
            )
        except urllib3.exceptions.MaxRetryError as error:
            # `from None`: the text of this error, which a traceback would show, has the signed URL.
            if isinstance(error.reason, urllib3.exceptions.SSLError):
                raise FetchError(
                    f"{location.name}: no secure connection: {error.reason}; is the server's certificate right?"
                ) from None
            if not isinstance(error.reason, urllib3.exceptions.ResponseError):
                raise PassingError(f"no answer: {error.reason}") from None
            raise FetchError(
                f"{location.name}: is redirected more than {_MOST_REDIRECTS} times; is the URL right?"
            ) from None
        except (urllib3.exceptions.LocationValueError, ValueError):
            raise FetchError(f"{location.name}: is not a valid URL; is it spelled right?") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise PassingError(f"no answer: {error}") from error

    def _manager_for(self, url: str) -> urllib3.PoolManager:
        proxy = _proxy_for(url)
        manager = self._managers.get(proxy)
        if manager is None:
            import urllib3

            timeout = urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S)
            if proxy:
                bare, credentials = _split_credentials(proxy)
                manager = urllib3.ProxyManager(
                    bare,
                    proxy_headers={f"Proxy-{key}": value for key, value in credentials.items()},
                    maxsize=_CONNECTIONS_PER_HOST,
                    timeout=timeout,
                )
            else:
                manager = urllib3.PoolManager(maxsize=_CONNECTIONS_PER_HOST, timeout=timeout)
            manager = self._managers.setdefault(proxy, manager)
        return manager


def strong_etag(response: urllib3.BaseHTTPResponse) -> str | None:
    """Return the ETag; None when there is none, or only a weak one."""
    etag = response.headers.get("ETag")
    return etag if etag is not None and etag.startswith('"') else None


def status_error(response: urllib3.BaseHTTPResponse, name: str) -> FetchError | PassingError:
    """Return the error for a response whose status means that it does not have the object."""
    status = response.status
    text = f"{status} {response.reason or ''}".strip()
    if status in _PASSING_STATUS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return PassingError(f"the server answers {text}", _retry_after_s(response))
    if status in _REFUSED_STATUS:
        return FetchError(
            f"{name}: the server refuses it ({text}); are credentials or signature right and still valid?"
        )
    if status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return FetchError(f"{name}: does not exist ({text}); is the URL right?")
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return PassingError("the object has become shorter than the part that was fetched")
    return FetchError(f"{name}: the server answers {text}, expected 200; is the URL right?")


def _resumed_size(response: urllib3.BaseHTTPResponse, resume: ResumePoint) -> int:
    content_range = response.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(content_range.strip())
    if match is None or int(match[1]) != resume.start or int(match[2]) != int(match[3]) - 1:
        raise PassingError(f"asked for the bytes from {resume.start} on, the answer is for {content_range!r}")
    if strong_etag(response) != resume.etag:
        raise PassingError("the object has changed since its first part was fetched")
    return int(match[3])


def _part_size(response: urllib3.BaseHTTPResponse, start: int, stop: int) -> int:
    """Check that a response is for the requested range; return the size of the whole object in bytes."""
    content_range = response.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(content_range.strip())
    if match is None or int(match[1]) != start or int(match[2]) + 1 != min(stop, int(match[3])):
        raise PassingError(f"asked for the bytes from {start} to {stop}, the answer is for {content_range!r}")
    length = response.headers.get("Content-Length")
    if length is not None and length != str(int(match[2]) + 1 - start):
        raise PassingError(f"the part has {length} bytes, expected {int(match[2]) + 1 - start}")
    return int(match[3])


def _tag(response: urllib3.BaseHTTPResponse) -> str | None:
    """Return the ETag, else the time of the last change; None when the server sends neither."""
    return response.headers.get("ETag") or response.headers.get("Last-Modified")


def _content_length(response: urllib3.BaseHTTPResponse) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _chunks(response: urllib3.BaseHTTPResponse) -> Generator[bytes]:
    import urllib3

    try:
        for chunk in response.stream(CHUNK_BYTES, decode_content=False):
            if chunk:
                yield chunk
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise PassingError(f"the connection broke inside the body: {error}") from error


def _retry_after_s(response: urllib3.BaseHTTPResponse) -> float | None:
    import urllib3

    value = response.headers.get("Retry-After")
    if value is None:
        return None
    try:
        return urllib3.Retry().parse_retry_after(value)
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return None


def _split_credentials(url: str) -> tuple[str, dict[str, str]]:
    """Split a URL into itself without user and password, and the header that carries these instead."""
    match = re.match(r"([A-Za-z]+://)([^/?#]*)@(.*)", url, re.DOTALL)
    if match is None:
        return url, {}
    bare = match[1] + match[3]
    if not match[2]:
        return bare, {}
    return bare, {"Authorization": "Basic " + base64.b64encode(unquote_to_bytes(match[2])).decode()}


def _proxy_for(url: str) -> str:
    """Return the proxy that the environment sets for `url`; empty when there is none."""
    from urllib.request import getproxies, proxy_bypass

    scheme, _, rest = url.partition("://")
    proxy = getproxies().get(scheme.lower())
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if not proxy or proxy_bypass(host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"
