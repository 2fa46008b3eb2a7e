from __future__ import annotations

import signal

import pytest

# Where the tests run in the background the shell has SIGINT ignored, and so would the commands that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a cache folder of its own; processes that it starts inherit it."""
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path_factory.mktemp("cache") / "wids"))
