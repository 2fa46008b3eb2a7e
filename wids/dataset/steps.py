"""The steps that the dataset's methods add to its list of transformations; each takes a sample and returns one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from wids.dataset.sample import Sample
from wids.fields import find_field


class Missing(Enum):
    """The default of `missing=` arguments, "not given"; an enum, so that it is one object in every process."""

    REQUIRED = "required"


REQUIRED = Missing.REQUIRED


def alternatives(spec: str) -> list[str]:
    """Return the fields of a spec such as `"jpg;png"`, the preferred one first.

    Raises:
        ValueError: The spec names no field.
    """
    names = [name.strip() for name in spec.split(";") if name.strip()]
    if not names:
        raise ValueError(f"field {spec!r} has no name in it; give one or more, as in 'jpg;png'")
    return names


def pick(sample: dict[str, Any], spec: str, missing: Any) -> Any:
    """Return the first field of `spec` that the sample has, or `missing` if it has none of them.

    Raises:
        KeyError: The sample has none, and `missing` was not given; the message lists the sample's fields.
    """
    for name in alternatives(spec):
        field = name if name in sample else find_field(name, sample)
        if field is not None:
            return sample[field]
    if missing is REQUIRED:
        there = ", ".join(field for field in sample if not field.startswith("__"))
        raise KeyError(
            f"index {sample.get('__index__')}, key {sample.get('__key__')!r} has none of {spec!r}; it has "
            f"{there or 'none'}; give missing= a value to take instead"
        )
    return missing


@dataclass(frozen=True)
class ToTuple:
    """Turns a sample into a tuple of field values."""

    fields: tuple[str, ...]
    missing: Any = REQUIRED

    def __call__(self, sample: dict[str, Any]) -> tuple[Any, ...]:
        """Return one value per field."""
        return tuple(pick(sample, field, self.missing) for field in self.fields)


@dataclass(frozen=True)
class SelectFields:
    """Keeps only some fields of a sample; `__key__` and the like stay."""

    fields: tuple[str, ...]
    missing: Any = REQUIRED

    def __call__(self, sample: dict[str, Any]) -> Sample:
        """Return the sample with these fields only, each under its own name."""
        selected = Sample({name: value for name, value in sample.items() if name.startswith("__")})
        for spec in self.fields:
            names = alternatives(spec)
            # The value of a column is stored under the column's name, and a field under its name with the dot.
            field = next((found for name in names if (found := _stored_name(name, sample))), None)
            dotted = names[0] if names[0].startswith(".") else f".{names[0]}"
            selected[field or dotted] = sample[field] if field else pick(sample, spec, self.missing)
        return selected


def _stored_name(name: str, sample: dict[str, Any]) -> str | None:
    return name if dict.__contains__(sample, name) else find_field(name, sample)


@dataclass(frozen=True)
class Rename:
    """Renames fields: `image="jpg;png"` calls the first of the two that a sample has `image`."""

    names: tuple[tuple[str, str], ...]
    """`(new name, spec of the present field)`"""

    def __call__(self, sample: dict[str, Any]) -> Sample:
        """Return the sample with its fields renamed; fields without a rule stay as they are."""
        renamed = Sample(sample)
        for new, spec in self.names:
            value = pick(sample, spec, REQUIRED)
            for name in alternatives(spec):
                old = _stored_name(name, sample)
                if old is not None:
                    renamed.pop(old, None)
                    break
            renamed[new] = value
        return renamed
