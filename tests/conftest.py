from __future__ import annotations

import signal
from contextlib import suppress

import pytest

# A shell makes background jobs ignore SIGINT; without this line the commands that tests interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

with suppress(ImportError):  # a few tests run in environments that have only what they need
    from hypothesis import HealthCheck, settings

    # No deadlines: on a busy machine a slow example proves nothing.
    settings.register_profile("wids", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("wids")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own cache folder, which the processes that it starts inherit."""
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path_factory.mktemp("cache") / "wids"))
