"""The names of files in the disk cache."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.errors import FetchError
from wids.storage.locations import locate
from wids.storage.names import CacheKey, cache_key, readable_stem

if TYPE_CHECKING:
    from collections.abc import Callable


def key_of(
    url: str,
    *,
    localname: Callable[[str], str] | None = None,
    storage_options: dict[str, Any] | None = None,
    **facts: Any,
) -> CacheKey:
    return cache_key(locate(url), facts, storage_options=storage_options or {}, localname=localname, cache_dir="/cache")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(key_of("http://h/x/0.tar"), key_of("http://h/y/0.tar"), id="folder"),
        pytest.param(key_of("http://h/0.tar"), key_of("http://h/0.tar", filesize=5), id="size"),
        pytest.param(key_of("http://h/0.tar", filesize=5), key_of("http://h/0.tar", filesize=6), id="other size"),
        pytest.param(key_of("http://h/0.tar", md5sum="a"), key_of("http://h/0.tar", md5sum="b"), id="checksum"),
        pytest.param(key_of("http://h/0.tar?a=1"), key_of("http://h/0.tar?a=2"), id="query"),
        pytest.param(key_of("http://h/a\nb.tar"), key_of("http://h/ab.tar"), id="control character"),
        pytest.param(key_of("/a/0.tar", mtime_ns=1), key_of("/a/0.tar", mtime_ns=2), id="modified file"),
        pytest.param(
            key_of("s3://b/0.tar", storage_options={"client_kwargs": {"endpoint_url": "http://one"}}),
            key_of("s3://b/0.tar", storage_options={"client_kwargs": {"endpoint_url": "http://two"}}),
            id="endpoint",
        ),
    ],
)
def test_different_objects_have_different_names(first: CacheKey, second: CacheKey) -> None:
    assert first.name != second.name


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            key_of("http://h/0.tar?X-Amz-Signature=1"), key_of("http://h/0.tar?X-Amz-Signature=2"), id="signature"
        ),
        pytest.param(
            key_of("s3://b/0.tar", storage_options={"key": "a", "secret": "b"}),
            key_of("s3://b/0.tar", storage_options={"key": "c", "secret": "d"}),
            id="credentials",
        ),
        pytest.param(key_of("a.tar"), key_of("file:a.tar"), id="spelling"),
    ],
)
def test_the_same_object_keeps_its_name(first: CacheKey, second: CacheKey) -> None:
    assert first.name == second.name


@pytest.mark.parametrize(
    ("path", "stem"),
    [
        ("host/train-0001.tar", "train-0001"),
        ("host/train-0001.tar.gz", "train-0001"),
        ("host/train-0001.TGZ", "train-0001"),
        ("host/日本 1.tar", "日本_1"),
        ("host/.hidden.tar", "hidden"),
        ("host/", "shard"),
        ("host/" + "é" * 300 + ".tar", "é" * 60),
    ],
)
def test_names_are_readable(path: str, stem: str) -> None:
    assert readable_stem(path) == stem


@given(st.text())
def test_names_stay_inside_the_folder(text: str) -> None:
    name = key_of("http://h/" + text).name

    assert os.sep not in name
    assert not name.startswith(".")
    assert len(os.fsencode(name)) <= 200


@given(st.text() | st.sampled_from(["../x", "/etc/passwd", "a/../../x", "", ".", ".wids/x", "a/..", "/cache/../x"]))
def test_localname_cannot_leave_the_folder(text: str) -> None:
    try:
        name = key_of("http://h/a.tar", localname=lambda _: text).name
    except FetchError:
        return

    path = os.path.normpath(f"/cache/{name}")
    assert path.startswith("/cache/")
    assert not path.startswith("/cache/.wids")


def test_localname_may_return_a_path_inside_the_folder() -> None:
    assert key_of("http://h/a.tar", localname=lambda url: "/cache/sub/" + url[-5:]).name == "sub/a.tar"
