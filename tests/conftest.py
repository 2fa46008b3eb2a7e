from __future__ import annotations

import signal
from contextlib import suppress

import pytest

# Where the tests run in the background the shell has SIGINT ignored, and so would the commands that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

with suppress(ImportError):  # a few tests run in environments that have only what they need
    from hypothesis import HealthCheck, settings

    # A machine that is busy with something else for a while proves nothing.
    settings.register_profile("wids", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("wids")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a cache folder of its own; processes that it starts inherit it."""
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path_factory.mktemp("cache") / "wids"))
