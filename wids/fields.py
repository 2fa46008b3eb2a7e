"""Look up fields however the user spells them: `jpg`, `.jpg`, `JPG`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def find_field(name: str, fields: Iterable[str]) -> str | None:
    """Return the one of `fields` that `name` refers to, or None.

    An exact match comes first, then one that differs only in case. The leading dot of `name` is optional.

    Examples:
        >>> find_field("jpg", [".txt", ".JPG"])
        '.JPG'
    """
    dotted = name if name.startswith(".") else f".{name}"
    lowered = dotted.lower()
    match = None
    for field in fields:
        if field == dotted:
            return field
        if match is None and field.lower() == lowered:
            match = field
    return match


def no_such_field(name: str, key: str | None, fields: Iterable[str]) -> KeyError:
    """Return the error that says which fields a sample has; raise it where `find_field` found none.

    Args:
        name: The field that was asked for.
        key: Of the sample; None where it has none.
        fields: That the sample has.

    Examples:
        >>> print(no_such_field("jpg", "0001", [".txt", ".cls"]).args[0])
        'jpg': sample '0001' has no such field; it has .txt, .cls
    """
    return KeyError(f"{name!r}: sample {key!r} has no such field; it has {', '.join(fields) or 'none'}")


def list_names(fields: Iterable[str] | str) -> list[str]:
    """Return the fields that a user names, who may give a single one as such, and not as a list of letters.

    Examples:
        >>> list_names("jpg"), list_names(("jpg", ".cls"))
        (['jpg'], ['jpg', '.cls'])
    """
    return [fields] if isinstance(fields, str) else list(fields)


class FieldFilter:
    """The set of fields to read, in any spelling that lookups in a sample accept.

    Args:
        names: Fields, each with or without its leading dot, in any case; a str is one field.
    """

    def __init__(self, names: Iterable[str] | str) -> None:
        self.names = frozenset((name if name.startswith(".") else f".{name}").lower() for name in list_names(names))

    def __contains__(self, field: object) -> bool:
        return isinstance(field, str) and field.lower() in self.names

    def __and__(self, other: FieldFilter | None) -> FieldFilter:
        return self if other is None else FieldFilter(self.names & other.names)
