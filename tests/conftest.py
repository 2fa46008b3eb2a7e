from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a cache folder of its own; processes that it starts inherit it."""
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path_factory.mktemp("cache") / "wids"))
