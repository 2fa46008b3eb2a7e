"""When an epoch begins, where it stands, and where a restored one goes on.

An epoch begins at an iterator's first `next()`: libraries call `iter()` more often than users do, so an iterator that is
thrown away uses up nothing. The next iterator begins the next epoch, also when this one was left early.
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
"""Where an epoch stands for all ranks: for samplers of indices, the number of places that are done."""


@dataclass(slots=True)
class Walk:
    """What one iterator has done."""

    epoch: int
    start: Place
    """Where it began."""
    total: int | None = None
    """Items from there to the end of the epoch, on this rank; None while it is not known."""
    done: int = 0
    """Items that it has yielded."""


@dataclass(slots=True)
class Epochs:
    """The epochs of one sampler."""

    current: int = 0
    """Of the latest iterator that has begun; when that has ended, the next one."""
    next: int = 0
    """What the next iterator begins."""
    armed: tuple[int, Place] | None = None
    """Epoch and place that were restored, until an iterator of that epoch has ended."""
    stays: bool = False
    """The next iterator may be left early, and the one after it begins the same epoch."""
    uncounted: int | None = None
    """The epoch of such an iterator, until it has ended."""
    walk: Walk | None = None
    """Of the iterator that yielded last, unless an epoch was set since."""

    def set(self, epoch: int) -> None:
        """Let the next iterator begin an epoch; at its restored place, where it has one."""
        self.current = self.next = epoch
        self.stays, self.uncounted = False, None
        self.walk = None

    def restore(self, epoch: int, place: Place, *, is_beginning: bool) -> None:
        """Let the next iterator begin an epoch at a place."""
        self.set(epoch)
        self.armed = epoch, place
        # When torchdata's StatefulDataLoader restores a finished epoch, its workers read ahead with one iterator, which is
        # thrown away for another one.
        self.stays = is_beginning

    def start_of(self, epoch: int) -> Place | None:
        """Return where an epoch begins; None for its beginning."""
        return self.armed[1] if self.armed is not None and self.armed[0] == epoch else None

    def begin(self) -> int:
        """Return the epoch that an iterator begins."""
        self.current = self.next
        self.uncounted = self.current if self.stays else None
        self.next += not self.stays
        self.stays = False
        return self.current

    def end(self, epoch: int) -> None:
        """Forget the restored place of an epoch, and go on to the next one."""
        if self.uncounted == epoch:
            self.next, self.uncounted = epoch + 1, None
        if self.armed is not None and self.armed[0] == epoch:
            self.armed = None


class EpochSampler(_Base):  # type: ignore[type-arg]
    """A sampler that counts epochs, and can be stopped and restored at any place of one."""

    def _start(self) -> None:
        self._epochs = Epochs()

    @property
    def epoch(self) -> int:
        """The epoch of the latest iterator that has begun, the next one when that has ended; setting is `set_epoch`."""
        return self._epochs.current

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iterator yield this epoch: from its restored place, until an iterator of it has ended."""
        self._epochs.set(whole_number("epoch", epoch))

    def __iter__(self) -> Iterator[Any]:
        # The body of a generator runs at its first next().
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
        """How many items this rank has still to yield in the epoch that `state_dict` tells of."""
        epoch, place = self._position()
        return self._count(epoch, place)

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return where training stands, as a few numbers and strings for JSON; valid for any number of ranks.

        Args:
            consumed: What all ranks together have used of the epoch, what they had used before a restart included, in
                samples (for batch samplers: batches of each rank). None for what was yielded; a DataLoader with workers
                asks for more than training has used. The epoch is that of the latest iterator, or set since.

        Raises:
            ValueError: `consumed` is negative.
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
        """Go on where a state was taken: the next iterator does, and `set_epoch` of that epoch keeps the place.

        Args:
            state: What `state_dict` returned, of a sampler with the same data and arguments, on any number of ranks.
            strict: False accepts data to which some was added since: this epoch ends with the data that it began with.

        Raises:
            ValueError: The state is of other data or arguments, or of a later version; names the difference.
        """
        check_version(state, type(self).__name__)
        epoch = whole_number("the state's epoch", state["epoch"])
        place = self._checked_place(state["place"])
        self._adopt(state, strict=strict)
        epoch, place = self._after(epoch, place)
        self._epochs.restore(epoch, place, is_beginning=place == self._beginning())

    def _position(self) -> tuple[int, Place]:
        """Return epoch and place that all ranks have reached, when they are in step with this one."""
        epochs = self._epochs
        walk = epochs.walk
        if walk is None:
            start = epochs.start_of(epochs.next)
            return epochs.next, self._beginning() if start is None else start
        if walk.done == walk.total:
            return walk.epoch + 1, self._beginning()
        return walk.epoch, self._place_after(walk)

    def _after(self, epoch: int, place: Place) -> tuple[int, Place]:
        """Return the same position, but the end of an epoch as the beginning of the next one."""
        return (epoch + 1, self._beginning()) if self._is_end(epoch, place) else (epoch, place)

    def _beginning(self) -> Place:
        return 0

    def _checked_place(self, place: Any) -> Place:
        if whole_number("the state's place", place) < 0:
            raise ValueError(f"the state's place is {place}; it must be at least 0")
        return place

    @abstractmethod
    def _blocks(self, walk: Walk) -> Iterator[Iterable[Any]]:
        """Yield this rank's items from where a walk began to the end of the epoch, block by block.

        How many they are is set in the walk at the latest before the last block.
        """

    @abstractmethod
    def _count(self, epoch: int, start: Place) -> int:
        """Return how many items this rank yields from a place to the end of an epoch."""

    @abstractmethod
    def _place_after(self, walk: Walk) -> Place:
        """Return the place that an iterator has reached."""

    @abstractmethod
    def _consumed_place(self, epoch: int, consumed: int) -> Place:
        """Return the place at which this much is used."""

    @abstractmethod
    def _is_end(self, epoch: int, place: Place) -> bool:
        """Tell whether nothing comes after a place, on whatever number of ranks."""

    @abstractmethod
    def _describe(self, epoch: int) -> dict[str, Any]:
        """Return what of the arguments and the data a state holds."""

    @abstractmethod
    def _adopt(self, state: Mapping[str, Any], *, strict: bool) -> None:
        """Take over what a state says and this sampler was not told.

        Raises:
            ValueError: They disagree.
        """


def check_version(state: Mapping[str, Any], kind: str) -> None:
    """Check that a state can be read here.

    Raises:
        ValueError: It cannot.
    """
    if "version" not in state:
        raise ValueError("this is no state of a sampler of wids; pass what state_dict() returned")
    if state["version"] != 1:
        raise ValueError(f"the state has version {state['version']}, and 1 is read here; use the wids that wrote it")
    missing = {"kind", "epoch", "place", "arguments", "data"} - set(state)
    if missing:
        raise ValueError(f"the state has no {min(missing)!r}; pass what state_dict() returned")
    if state["kind"] != kind:
        raise ValueError(
            f"the state is of a {state['kind']}, and this is a {kind}; use the sampler that it was taken of"
        )


def whole_number(name: str, value: Any) -> int:
    """Return a whole number of any kind, numpy's too, as an int.

    Raises:
        TypeError: It is none.
    """
    try:
        return as_index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be a whole number") from None
