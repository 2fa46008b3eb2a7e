"""Warn once when the indices to sample from jump between shards, which no order of chunks can repair."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

logger = logging.getLogger(__name__)

_RUNS_PER_SHARD = 2
"""Runs of consecutive samples from one shard that are acceptable, on average over the shards."""

_warned = False


def warn_if_scattered(dataset: Any) -> None:
    """Log a warning, once per process, when consecutive samples of a dataset keep changing shards.

    Args:
        dataset: A `torch.utils.data.Subset` of a dataset with shards, or a view of one; for anything else nothing is
            done.
    """
    global _warned  # noqa: PLW0603 - one warning per process, however many samplers it makes
    if _warned:
        return
    runs, num_shards, kind = _count_runs(dataset)
    if runs <= _RUNS_PER_SHARD * num_shards:
        return
    _warned = True
    logger.warning(
        "the indices of this %s jump between shards: %d times among %d; dataset.select(mask) keeps samples in the order of "
        "the shards, and dataset.split({'train': 0.99, 'val': 0.01}) splits them so",
        kind,
        runs,
        num_shards,
    )


def _count_runs(dataset: Any) -> tuple[int, int, str]:
    """Return the number of runs of samples from one shard, the number of shards, and what to call the dataset."""
    kind = type(dataset).__name__
    if hasattr(dataset, "num_shards"):
        return len(dataset.lengths), dataset.num_shards, "view"
    if not _is_subset(dataset):
        return 0, 0, kind
    indices = np.asarray(dataset.indices)
    while _is_subset(dataset.dataset):
        dataset = dataset.dataset
        indices = np.asarray(dataset.indices)[indices]
    lengths = getattr(dataset.dataset, "lengths", None)
    if lengths is None or not len(indices):
        return 0, 0, kind
    shards = np.searchsorted(np.cumsum(lengths), indices, side="right")
    return 1 + int((shards[1:] != shards[:-1]).sum()), len(np.unique(shards)), kind


def _is_subset(dataset: Any) -> bool:
    """Tell whether this is torch's `Subset`, without importing torch."""
    return type(dataset).__name__ == "Subset" and hasattr(dataset, "indices") and hasattr(dataset, "dataset")
