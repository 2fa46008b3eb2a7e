from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.storage.web_server import WebServer, web_server
from wids.storage import Storage, StorageOptions
from wids.storage.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUICK = RetryPolicy(first_delay_s=0.01, longest_delay_s=0.02)
"""As many attempts as by default, with hardly any waiting between them."""


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as running:
        yield running


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    """The cache folder of `make_storage`; it does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def make_storage(cache_dir: Path) -> Callable[..., Storage]:
    """Makes a `Storage` on `cache_dir` that does not wait long between attempts."""

    def make(**options: Any) -> Storage:
        return Storage(StorageOptions(**{"cache_dir": str(cache_dir), **options}), retry=QUICK)

    return make
