"""One sample as a dictionary whose lookups take a field as people say it: `jpg`, `.jpg`, `JPG`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.tar import find_field

if TYPE_CHECKING:
    from collections.abc import Iterable


class Sample(dict[str, Any]):
    """A sample: its fields under their names with the leading dot, and `__key__`, `__index__` and the like.

    `[]`, `get` and `in` also take a field without its dot or in another case.

    Examples:
        >>> sample = Sample({"__key__": "0001", ".JPG": b"..."})
        >>> sample["jpg"], sample.get("txt"), ".jpg" in sample
        (b'...', None, True)
    """

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        found = self._find(name)
        if found is None:
            there = ", ".join(field for field in self if field.startswith("."))
            raise KeyError(f"{name!r}: sample {self.get('__key__')!r} has no such field; it has {there or 'none'}")
        return dict.__getitem__(self, found)

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or self._find(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field, or `default` when there is none."""
        found = self._find(name)
        return default if found is None else dict.__getitem__(self, found)

    def _find(self, name: object) -> str | None:
        if dict.__contains__(self, name):
            return name  # type: ignore[return-value]
        return find_field(name, self) if isinstance(name, str) else None


class FieldFilter:
    """The fields that a user wants read, in any spelling that a sample's lookups take.

    Args:
        names: Fields, each with or without its dot.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset((name if name.startswith(".") else f".{name}").lower() for name in names)

    def __contains__(self, field: object) -> bool:
        return isinstance(field, str) and field.lower() in self.names

    def __and__(self, other: FieldFilter | None) -> FieldFilter:
        return self if other is None else FieldFilter(self.names & other.names)
