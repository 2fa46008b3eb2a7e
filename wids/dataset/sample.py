"""`Sample`: a dictionary of fields whose lookups accept any spelling of a field: `jpg`, `.jpg`, `JPG`."""

from __future__ import annotations

from typing import Any

from wids.fields import find_field, no_such_field


class Sample(dict[str, Any]):
    """A sample: its fields, named with the leading dot, and `__key__`, `__index__` and the like.

    `[]`, `get` and `in` also accept a field without its dot, or in another case.

    Examples:
        >>> sample = Sample({"__key__": "0001", ".JPG": b"..."})
        >>> sample["jpg"], sample.get("txt"), ".jpg" in sample
        (b'...', None, True)
    """

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        found = self._find(name)
        if found is None:
            raise no_such_field(name, self.get("__key__"), [field for field in self if field.startswith(".")])
        return dict.__getitem__(self, found)

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or self._find(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, or `default` if the sample does not have it."""
        found = self._find(name)
        return default if found is None else dict.__getitem__(self, found)

    def _find(self, name: object) -> str | None:
        if dict.__contains__(self, name):
            return name  # type: ignore[return-value]
        return find_field(name, self) if isinstance(name, str) else None
