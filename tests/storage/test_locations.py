"""URLs and paths become locations, or are refused; no secret is in their names."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wids
from wids.errors import FetchError
from wids.storage.locations import locate, unsigned


@pytest.mark.parametrize(
    ("url", "path"),
    [
        pytest.param("/data/a b.tar", "/data/a b.tar", id="space"),
        pytest.param("/data/a%20b?c#d.tar", "/data/a%20b?c#d.tar", id="plain path is not decoded"),
        pytest.param("data/a.tar", "data/a.tar", id="relative"),
        pytest.param("file:///data/a%20b.tar", "/data/a b.tar", id="percent"),
        pytest.param("file:///data/a?b#c.tar", "/data/a?b#c.tar", id="question mark and hash"),
        pytest.param("file://localhost/data/a.tar", "/data/a.tar", id="localhost"),
        pytest.param("file:/data/100%.tar", "/data/100%.tar", id="percent that is none"),
        pytest.param("file:data/a.tar", "data/a.tar", id="relative file URL"),
        pytest.param("FILE:///data/a.tar", "/data/a.tar", id="upper case"),
        pytest.param("file:///data/%ff.tar", os.fsdecode(b"/data/\xff.tar"), id="bytes that are no UTF-8"),
    ],
)
def test_local_urls_become_paths(url: str, path: str) -> None:
    location = locate(url)

    assert (location.kind, location.path) == ("local", path)


@pytest.mark.parametrize("url", ["~/a.tar", "file:~/a.tar"])
def test_a_tilde_is_the_home_folder(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")

    assert locate(url).path == "/home/me/a.tar"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://host/a.tar", "web"),
        ("HTTPS://host/a.tar", "web"),
        ("s3://bucket/a.tar", "store"),
        ("memory://a.tar", "store"),
        ("pipe:cat a.tar", "pipe"),
    ],
)
def test_a_scheme_chooses_the_transport(url: str, kind: str) -> None:
    assert locate(url).kind == kind


@pytest.mark.parametrize("url", ["", "a\0b.tar", "file:///a%00b.tar", "\ud800.tar"], ids=ascii)
def test_text_that_cannot_be_a_path_is_refused(url: str) -> None:
    with pytest.raises(FetchError, match="path"):
        locate(url)


def test_a_file_on_another_host_is_refused() -> None:
    with pytest.raises(FetchError, match=r"host 'server'.*file:///path"):
        locate("file://server/data/a.tar")


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://h/a.tar?X-Amz-Signature=1&X-Amz-Date=2", "https://h/a.tar"),
        ("https://h/a.tar?Expires=9&Signature=1&Key-Pair-Id=2", "https://h/a.tar"),
        ("https://h/a.tar?sv=1&sp=r&sig=x&part=2", "https://h/a.tar?part=2"),
        ("https://h/a.tar#top", "https://h/a.tar"),
        ("https://me:pw@h/a.tar", "https://me@h/a.tar"),
        ("https://h/a.tar?expires=never", "https://h/a.tar?expires=never"),
        ("https://h/a.tar?sv=1", "https://h/a.tar?sv=1"),
        ("s3://b/a#1.tar?versionId=3", "s3://b/a#1.tar?versionId=3"),
    ],
)
def test_signing_parameters_are_no_part_of_an_objects_identity(url: str, same: str) -> None:
    assert unsigned(locate(url)) == same


@given(st.text())
def test_every_text_is_located_or_refused(text: str) -> None:
    try:
        location = locate(text)
    except FetchError:
        return

    unsigned(location)


@given(st.from_regex(r"[a-z]{12}", fullmatch=True))
def test_names_of_locations_have_no_secrets(secret: str) -> None:
    urls = [
        f"https://me:{secret}@host/a.tar",
        f"s3://{secret}@bucket/a.tar",
        f"https://host/a.tar?token={secret}",
        f"pipe:curl -u me:{secret} https://host/a.tar",
        f"pipe:TOKEN={secret} fetch a.tar",
    ]

    names = [locate(url).name for url in urls]

    assert not [name for name in names if secret in name]


@pytest.mark.parametrize("url", ["~\0.tar", "~\ud800/a.tar", "a\0.tar", "file:~\0"], ids=ascii)
def test_invalid_paths_are_refused_by_locate_and_by_the_dataset(url: str) -> None:
    with pytest.raises(FetchError, match="is the path right"):
        locate(url)
    with pytest.raises(FetchError, match="is the path right"):
        wids.ShardListDataset([(url, 1)])[0]
    if not url.startswith("file:"):
        with pytest.raises(FetchError, match="is the path right"):
            wids.ShardListDataset([("a.tar", 1)], base=url)[0]
