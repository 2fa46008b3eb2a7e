"""Find this process's rank: from arguments, the process group, `RANK` and `WORLD_SIZE`, or else as the only replica."""

from __future__ import annotations

import logging
import os
from typing import Any

from wids.sampling.epochs import whole_number

logger = logging.getLogger(__name__)


class RankFinder:
    """Finds the rank and the number of replicas when they are first needed.

    Args:
        rank: The rank, where the user gave it; None to find it.
        num_replicas: The number of replicas, where the user gave it; None to find it.

    Raises:
        TypeError: One is not a whole number.
        ValueError: Both are given, and the rank is not below the number of replicas.
    """

    def __init__(self, rank: int | None, num_replicas: int | None) -> None:
        self._rank = None if rank is None else whole_number("rank", rank)
        self._replicas = None if num_replicas is None else whole_number("num_replicas", num_replicas)
        if self._rank is not None and self._replicas is not None:
            _check_rank(self._rank, self._replicas)
        self._found: tuple[int, int] | None = None
        self._logged: tuple[int, int] | None = None

    def find(self) -> tuple[int, int]:
        """Return `(rank, num_replicas)`.

        Raises:
            ValueError: Only one of them is given and the other cannot be found, or what is found contradicts it.
        """
        if self._rank is not None and self._replicas is not None:
            return self._rank, self._replicas
        if self._found is not None:
            return self._found
        group = _ask_process_group()
        (rank, replicas), where = (group, "the process group") if group is not None else self._ask_elsewhere()
        found = (rank if self._rank is None else self._rank, replicas if self._replicas is None else self._replicas)
        _check_rank(*found)
        if found != self._logged:
            self._logged = found
            logger.info("rank %d of %d, from %s", *found, where)
        if group is not None:  # nothing else is final: a process group may still be set up
            self._found = found
        return found

    def _ask_elsewhere(self) -> tuple[tuple[int, int], str]:
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            return (_number_in_environment("RANK"), _number_in_environment("WORLD_SIZE")), "RANK and WORLD_SIZE"
        if self._rank is None and self._replicas is None:
            return (0, 1), "neither a process group nor RANK and WORLD_SIZE: one replica"
        known, missing = ("rank", "num_replicas") if self._rank is not None else ("num_replicas", "rank")
        raise ValueError(f"{known} is given, but {missing} is not, and there is no process group to ask; give both")

    def __getstate__(self) -> dict[str, Any]:
        # The process that unpickles this may have another rank, so it searches again.
        return {**self.__dict__, "_found": None, "_logged": None}


def _number_in_environment(name: str) -> int:
    text = os.environ[name]
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"the environment variable {name} is {text!r}; it must be a whole number") from None


def _ask_process_group() -> tuple[int, int] | None:
    try:
        import torch.distributed as dist
    except ImportError:
        return None
    if not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()


def _check_rank(rank: int, num_replicas: int) -> None:
    if num_replicas < 1 or not 0 <= rank < num_replicas:
        raise ValueError(f"rank is {rank} of {num_replicas}; it must be at least 0 and below the number of replicas")
