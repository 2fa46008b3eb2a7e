"""URLs to streams of bytes: http(s) by urllib3, commands for `pipe:` where they are allowed, the rest by fsspec."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.errors import FetchError, redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.storage.options import StorageOptions

_PIECE = 1 << 20
_ATTEMPTS = 5
_EXTRAS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "hf": "hf",
}
_pools: dict[int, Any] = {}


def open_stream(url: str, options: StorageOptions) -> Iterator[bytes]:
    """Yield the bytes of an object; raise when they are not all of it.

    Raises:
        FetchError: It cannot be had.
    """
    if url.startswith("pipe:"):
        return _from_pipe(url, options)
    if url.startswith(("http://", "https://")):
        return _from_http(url)
    return _from_fsspec(url, options)


def _from_http(url: str) -> Iterator[bytes]:
    import urllib3

    # Pools are per process: a socket that two processes share would mix their answers.
    pool = _pools.get(os.getpid())
    if pool is None:
        retries = urllib3.Retry(
            total=_ATTEMPTS,
            backoff_factor=0.2,
            backoff_jitter=0.2,
            status_forcelist=(429, 500, 502, 503, 504),
            raise_on_status=False,
        )
        pool = _pools[os.getpid()] = urllib3.PoolManager(retries=retries, timeout=urllib3.Timeout(connect=20, read=60))
    try:
        response = pool.request("GET", _quote(url), preload_content=False, headers={"Accept-Encoding": "identity"})
        if response.status != 200:
            response.release_conn()
            raise FetchError(
                f"{redact(url)}: the server answers {response.status} {response.reason}; is the URL right, and may you read it?"
            )
        # enforce_content_length is urllib3's default: a short body raises.
        yield from response.stream(_PIECE)
    except urllib3.exceptions.HTTPError as error:
        cause = redact(str(error.__cause__ or getattr(error, "reason", None) or type(error).__name__))
        raise FetchError(f"{redact(url)}: cannot be fetched: {cause}; is the server reachable?") from error


def _quote(url: str) -> str:
    from urllib.parse import quote

    return quote(url, safe="%/:=&?~#+!$,;'@()*[]")


def _from_pipe(url: str, options: StorageOptions) -> Iterator[bytes]:
    if not options.may_pipe:
        raise FetchError(
            f"pipe: URLs run commands, and this one was not run: {url[:60]!r}; if you trust who wrote it, pass allow_pipe=True"
        )
    command = url.removeprefix("pipe:")
    with tempfile.TemporaryDirectory(prefix="wids-pipe-") as folder:
        target = Path(folder, "shard")
        with target.open("wb") as output:
            # Only this placeholder is replaced, so that a command's other braces stay as they are.
            to_file = "{local}" in command
            status = subprocess.run(  # noqa: S602  # running a command is what pipe: means; only where the user allowed it
                command.replace("{local}", shlex.quote(str(target))),
                shell=True,
                stdout=None if to_file else output,
                stdin=subprocess.DEVNULL,
                check=False,
            ).returncode
        if status:
            raise FetchError(
                f"pipe: the command ended with status {status}: {command[:60]!r}; run it by hand to see why"
            )
        with target.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece


def _from_fsspec(url: str, options: StorageOptions) -> Iterator[bytes]:
    import fsspec

    scheme = url.partition("://")[0]
    try:
        # A fresh instance per call: one that was made before a fork hangs in the child.
        system, path = fsspec.core.url_to_fs(url, skip_instance_cache=True, **(options.storage_options or {}))
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        remedy = f"pip install 'wids[{extra}]'" if extra else f"install the package that fsspec needs for it ({error})"
        raise FetchError(f"{redact(url)}: {scheme}:// needs a driver that is not installed; {remedy}") from error
    except ValueError as error:
        raise FetchError(f"{redact(url)}: nothing here reads {scheme}:// URLs; is the scheme right?") from error
    try:
        size = system.info(path).get("size")
        received = 0
        with system.open(path, "rb") as file:
            while piece := file.read(_PIECE):
                received += len(piece)
                yield piece
    except OSError as error:
        raise FetchError(
            f"{redact(url)}: cannot be read: {redact(str(error))}; is the URL right, and may you read it?"
        ) from error
    if size is not None and received != size:
        raise FetchError(f"{redact(url)}: {received} bytes came, expected {size}; try again")
