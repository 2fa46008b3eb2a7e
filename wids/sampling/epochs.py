"""When an epoch begins, how far it has got, and where a restored one resumes.

An epoch begins at an iterator's first `next()`, not at `iter()`: libraries call `iter()` more often than users do, and
an iterator that is discarded unused must not use up an epoch. The next iterator begins the next epoch, even if this one
was abandoned early.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from operator import index as as_index
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

try:
    from torch.utils.data import Sampler as _Base
except ImportError:
    _Base = object  # type: ignore[assignment,misc]

Place = Any
"""A position in an epoch, common to all ranks; for samplers of indices, the number of places consumed."""


@dataclass(slots=True)
class Walk:
    """The progress of one iterator."""

    epoch: int
    start: Place
    """Where it began."""
    total: int | None = None
    """Items from `start` to the end of the epoch on this rank; None while unknown."""
    done: int = 0
    """Items yielded so far."""


@dataclass(slots=True)
class Epochs:
    """The epoch counter of one sampler, and the place to which it was restored."""

    current: int = 0
    """Epoch of the latest iterator that has begun; once that iterator has ended, the next epoch."""
    next: int = 0
    """Epoch that the next iterator begins."""
    armed: tuple[int, Place] | None = None
    """Restored epoch and place, until an iterator of that epoch has ended."""
    stays: bool = False
    """Whether an epoch that the next iterator abandons is begun again by the one after it."""
    uncounted: int | None = None
    """Epoch of an iterator that may be abandoned so, until it has ended."""
    walk: Walk | None = None
    """Progress of the iterator that yielded last; None once an epoch has been set."""

    def set(self, epoch: int) -> None:
        """Make the next iterator begin an epoch, at its restored place if it has one."""
        self.current = self.next = epoch
        self.stays, self.uncounted = False, None
        self.walk = None

    def restore(self, epoch: int, place: Place, *, is_beginning: bool) -> None:
        """Make the next iterator begin an epoch at a place."""
        self.set(epoch)
        self.armed = epoch, place
        # When torchdata's StatefulDataLoader restores a finished epoch, its workers read ahead with one iterator and
        # then discard it for another.
        self.stays = is_beginning

    def start_of(self, epoch: int) -> Place | None:
        """Return the restored place of an epoch; None for its beginning."""
        return self.armed[1] if self.armed is not None and self.armed[0] == epoch else None

    def begin(self) -> int:
        """Return the epoch that a new iterator begins, and advance the counter."""
        self.current = self.next
        self.uncounted = self.current if self.stays else None
        self.next += not self.stays
        self.stays = False
        return self.current

    def end(self, epoch: int) -> None:
        """Record that an iterator of an epoch has ended: forget its restored place, and let the next epoch follow."""
        if self.uncounted == epoch:
            self.next, self.uncounted = epoch + 1, None
        if self.armed is not None and self.armed[0] == epoch:
            self.armed = None


class EpochSampler(_Base):  # type: ignore[type-arg]
    """A sampler that counts epochs, and can be stopped and resumed at any place in one."""

    def _start(self) -> None:
        self._epochs = Epochs()

    @property
    def epoch(self) -> int:
        """Epoch of the latest iterator that has begun, or the next if that has ended; assigning calls `set_epoch`."""
        return self._epochs.current

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator yield this epoch.

        If `load_state_dict` has restored a place in this epoch, iterators begin there until one of them has ended.
        """
        self._epochs.set(whole_number("epoch", epoch))

    def __iter__(self) -> Iterator[Any]:
        # This is a generator: nothing below runs before its first next().
        epochs = self._epochs
        epoch = epochs.begin()
        start = epochs.start_of(epoch)
        start = self._beginning() if start is None else start
        walk = epochs.walk = Walk(epoch, start)
        for block in self._blocks(walk):
            for item in block:
                walk.done += 1
                epochs.walk = walk
                if walk.done == walk.total:
                    epochs.end(epoch)
                yield item
        walk.total = walk.done
        epochs.end(epoch)
        if epochs.walk is walk:
            epochs.current = epochs.next

    @property
    def remaining(self) -> int:
        """How many items this rank has yet to yield in the epoch that `state_dict` describes."""
        epoch, place = self._position()
        return self._count(epoch, place)

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return how far training has got, as a few numbers and strings for JSON; valid for any number of ranks.

        Args:
            consumed: How many samples of the epoch all ranks together have used, including those used before a restart;
                for batch samplers, how many batches each rank has used. The epoch is that of the latest iterator, or
                the one set since. None for what was yielded, which is more than training has used where a DataLoader
                has workers.

        Raises:
            TypeError: `consumed` is not a whole number.
            ValueError: `consumed` is negative or, for batch samplers, more than was yielded.
        """
        epoch, place = self._position()
        if consumed is not None:
            consumed = whole_number("consumed", consumed)
            if consumed < 0:
                raise ValueError(f"consumed is {consumed}; it must be at least 0")
            walk = self._epochs.walk
            epoch = epoch if walk is None else walk.epoch
            epoch, place = self._after(epoch, self._consumed_place(epoch, consumed))
        return {"version": 1, "kind": type(self).__name__, "epoch": epoch, "place": place, **self._describe(epoch)}

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Resume where a state was taken: the next iterator begins there, also after `set_epoch` of that epoch.

        Args:
            state: What `state_dict` returned, for a sampler with the same data and arguments, on any number of ranks.
            strict: False also accepts data to which samples have been appended since; this epoch then ends with the
                data that it began with.

        Raises:
            ValueError: The state is of other data or arguments, or of a later version; the message names the
                difference.
        """
        check_version(state, type(self).__name__)
        epoch = whole_number("the state's epoch", state["epoch"])
        place = self._checked_place(state["place"])
        self._adopt(state, strict=strict)
        epoch, place = self._after(epoch, place)
        self._epochs.restore(epoch, place, is_beginning=place == self._beginning())

    def _position(self) -> tuple[int, Place]:
        """Return the epoch and place that all ranks have reached, if they are level with this one."""
        epochs = self._epochs
        walk = epochs.walk
        if walk is None:
            start = epochs.start_of(epochs.next)
            return epochs.next, self._beginning() if start is None else start
        if walk.done == walk.total:
            return walk.epoch + 1, self._beginning()
        return walk.epoch, self._place_after(walk)

    def _after(self, epoch: int, place: Place) -> tuple[int, Place]:
        """Return the same position, with the end of an epoch turned into the beginning of the next."""
        return (epoch + 1, self._beginning()) if self._is_end(epoch, place) else (epoch, place)

    def _beginning(self) -> Place:
        return 0

    def _checked_place(self, place: Any) -> Place:
        if whole_number("the state's place", place) < 0:
            raise ValueError(f"the state's place is {place}; it must be at least 0")
        return place

    @abstractmethod
    def _blocks(self, walk: Walk) -> Iterator[Iterable[Any]]:
        """Yield this rank's items, block by block, from where a walk began to the end of the epoch.

        `walk.total` is set before the last block is yielded, at the latest.
        """

    @abstractmethod
    def _count(self, epoch: int, start: Place) -> int:
        """Return how many items this rank yields from a place to the end of an epoch."""

    @abstractmethod
    def _place_after(self, walk: Walk) -> Place:
        """Return the place that an iterator has reached."""

    @abstractmethod
    def _consumed_place(self, epoch: int, consumed: int) -> Place:
        """Return the place at which this much has been used."""

    @abstractmethod
    def _is_end(self, epoch: int, place: Place) -> bool:
        """Tell whether no rank has anything left after a place."""

    @abstractmethod
    def _describe(self, epoch: int) -> dict[str, Any]:
        """Return what a state records of the arguments and the data."""

    @abstractmethod
    def _adopt(self, state: Mapping[str, Any], *, strict: bool) -> None:
        """Adopt the arguments of a state that this sampler was not given.

        Raises:
            ValueError: The state is of other arguments or other data.
        """


def check_version(state: Mapping[str, Any], kind: str) -> None:
    """Check that a state is complete, of a version that can be read here, and of this kind of sampler.

    Raises:
        ValueError: It is not.
    """
    if "version" not in state:
        raise ValueError("this is not the state of a sampler of wids; pass what state_dict() returned")
    if state["version"] != 1:
        raise ValueError(
            f"the state has version {state['version']}, but only version 1 can be read; use the version of wids that wrote it"
        )
    missing = {"kind", "epoch", "place", "arguments", "data"} - set(state)
    if missing:
        raise ValueError(f"the state has no {min(missing)!r}; pass what state_dict() returned")
    if state["kind"] != kind:
        raise ValueError(
            f"the state is of a {state['kind']}, and this is a {kind}; use the sampler from which it was taken"
        )


def whole_number(name: str, value: Any) -> int:
    """Return an integer of any type, numpy's included, as an `int`.

    Raises:
        TypeError: The value is not an integer.
    """
    try:
        return as_index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be a whole number") from None
