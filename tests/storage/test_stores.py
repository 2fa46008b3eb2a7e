"""Shards in object stores, which fsspec reads."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.storage.reading import content, shards
from wids.errors import FetchError, ShardMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from wids.storage import Storage

DATA = b"tar" * 100_000
SECRET = "hunter2"


@pytest.fixture
def bucket() -> str:
    """The URL of an empty folder of fsspec's store in memory."""
    return f"memory://{uuid.uuid4().hex}"


class Renamed(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """fsspec's store in memory under another scheme."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.replace(f"{cls.protocol}://", "memory://"))
        return stripped


def put(url: str, data: bytes) -> str:
    with fsspec.open(url, "wb") as file:
        file.write(data)
    return url


@pytest.mark.parametrize("name", ["a.tar", "a b.tar", "it's.tar", "a#b?c.tar", "日本.tar"])
def test_names_with_special_characters_are_fetched(
    name: str, bucket: str, make_storage: Callable[..., Storage]
) -> None:
    url = put(f"{bucket}/{name}", DATA)

    assert content(make_storage().open({"url": url, "filesize": len(DATA)})) == DATA


def test_a_missing_object_is_named(bucket: str, make_storage: Callable[..., Storage]) -> None:
    with pytest.raises(FetchError, match=r"memory://.*/a\.tar: cannot be opened: FileNotFoundError"):
        make_storage().open({"url": f"{bucket}/a.tar"})


def test_a_wrong_size_is_refused(bucket: str, make_storage: Callable[..., Storage], cache_dir: Path) -> None:
    url = put(f"{bucket}/a.tar", DATA)

    with pytest.raises(ShardMismatchError, match=r"more bytes than the 7 that the descriptor says"):
        make_storage().open({"url": url, "filesize": 7})

    assert not shards(cache_dir)


@pytest.mark.parametrize(
    ("scheme", "extra"), [("s3", "s3"), ("gs", "gcs"), ("az", "azure"), ("abfs", "azure"), ("hf", "hf")]
)
def test_a_missing_driver_is_named_with_how_to_install_it(
    scheme: str, extra: str, make_storage: Callable[..., Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(protocol: str) -> None:
        raise ImportError(f"no driver for {protocol}")

    monkeypatch.setattr(fsspec.core, "get_filesystem_class", missing)

    with pytest.raises(FetchError, match=rf"run: pip install 'wids\[{extra}\]'"):
        make_storage().open({"url": f"{scheme}://bucket/a.tar"})


@pytest.mark.parametrize(
    "url", ["nonsense://a/b.tar", "memory://a::memory://b", "simplecache://a.tar", "zip://a.tar", "://", "a+b://"]
)
def test_urls_that_no_store_reads_are_refused(url: str, make_storage: Callable[..., Storage]) -> None:
    with pytest.raises(FetchError):
        make_storage().open({"url": url})


def test_storage_options_reach_the_store(bucket: str, make_storage: Callable[..., Storage]) -> None:
    seen: list[dict[str, Any]] = []

    class Watched(Renamed):
        protocol = "watched"
        cachable = True

        def __init__(self, **options: Any) -> None:
            seen.append(options)
            super().__init__(**options)

    fsspec.register_implementation("watched", Watched, clobber=True)
    url = put(f"{bucket}/a.tar", DATA).replace("memory://", "watched://")
    storage = make_storage(storage_options={"endpoint_url": "http://here"})

    assert content(storage.open({"url": url})) == DATA
    assert storage.read(url) == DATA
    assert seen == [{"endpoint_url": "http://here"}]


class Changing(Renamed):
    """A store whose objects change with each read."""

    protocol = "changing"
    count = 0

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        Changing.count += 1
        return {**super().info(path, **kwargs), "ETag": str(Changing.count)}


def test_an_object_that_changes_while_it_is_read_is_an_error(
    bucket: str, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    fsspec.register_implementation("changing", Changing, clobber=True)
    url = put(f"{bucket}/a.tar", DATA).replace("memory://", "changing://")

    with pytest.raises(FetchError, match="has changed while it was read"):
        make_storage().open({"url": url})

    assert not shards(cache_dir)


class Failing(Renamed):
    """A store whose first requests fail."""

    protocol = "failing"
    failures = 0

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        if Failing.failures:
            Failing.failures -= 1
            raise ConnectionResetError(f"{path}: connection lost")
        info: dict[str, Any] = super().info(path, **kwargs)
        return info


def test_a_store_that_fails_temporarily_is_tried_again(bucket: str, make_storage: Callable[..., Storage]) -> None:
    fsspec.register_implementation("failing", Failing, clobber=True)
    url = put(f"{bucket}/a.tar", DATA).replace("memory://", "failing://")
    Failing.failures = 2

    assert content(make_storage().open({"url": url})) == DATA


def test_secrets_of_a_url_stay_out_of_a_drivers_errors(bucket: str, make_storage: Callable[..., Storage]) -> None:
    import traceback

    url = f"{bucket}/a.tar?token=" + SECRET

    with pytest.raises(FetchError) as caught:
        make_storage().open({"url": url})

    assert SECRET not in "".join(traceback.format_exception(caught.value))


class Marking(Renamed):
    """A store that lists the empty object of a folder's own name, as s3fs does."""

    protocol = "marking"
    cachable = False

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        entries = super().ls(path, detail=True, **options)
        if [entry["name"] for entry in entries] == [path]:
            return entries
        return [{"name": f"{path}/", "size": 0, "type": "file"}, *entries]


def test_a_folder_with_a_marker_of_its_own_is_listed(bucket: str, make_storage: Callable[..., Storage]) -> None:
    fsspec.register_implementation("marking", Marking, clobber=True)
    folder = put(f"{bucket}/train/0.tar", DATA).replace("memory://", "marking://").removesuffix("/0.tar")
    storage = make_storage()

    assert storage.list_folder(folder) == ["0.tar"]
    assert storage.list_folder(f"{folder}/") == ["0.tar"]
    assert storage.list_folder(f"{folder}/0.tar") is None
