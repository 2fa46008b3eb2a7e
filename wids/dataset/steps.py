"""What the dataset's methods put into its list of transformations; each takes a sample and returns one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from wids.dataset.sample import Sample
from wids.tar import find_field


class Missing(Enum):
    """Stands for "no value was given for a missing field"; an enum, so that it is the same one in every process."""

    REQUIRED = "required"


REQUIRED = Missing.REQUIRED


def alternatives(spec: str) -> list[str]:
    """Return the fields that `"jpg;png"` allows, the preferred first.

    Raises:
        ValueError: There is none.
    """
    names = [name.strip() for name in spec.split(";") if name.strip()]
    if not names:
        raise ValueError(f"field {spec!r} names nothing; give one or more, as in 'jpg;png'")
    return names


def pick(sample: dict[str, Any], spec: str, missing: Any) -> Any:
    """Return the first of the fields that `spec` allows, `missing` when none is there.

    Raises:
        KeyError: None is there, and `missing` was not given; lists the fields that are.
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
    """Sample to a tuple of fields."""

    fields: tuple[str, ...]
    missing: Any = REQUIRED

    def __call__(self, sample: dict[str, Any]) -> tuple[Any, ...]:
        """Return one value per field."""
        return tuple(pick(sample, field, self.missing) for field in self.fields)


@dataclass(frozen=True)
class SelectFields:
    """Sample to one with fewer fields; what is not a field stays."""

    fields: tuple[str, ...]
    missing: Any = REQUIRED

    def __call__(self, sample: dict[str, Any]) -> Sample:
        """Return the sample with these fields only, each under its own name."""
        selected = Sample({name: value for name, value in sample.items() if name.startswith("__")})
        for spec in self.fields:
            names = alternatives(spec)
            field = next((found for found in (find_field(name, sample) for name in names) if found), None)
            dotted = names[0] if names[0].startswith(".") else f".{names[0]}"
            selected[field or dotted] = sample[field] if field else pick(sample, spec, self.missing)
        return selected


@dataclass(frozen=True)
class Rename:
    """Sample to one with other names: `image="jpg;png"` calls the first that is there `image`."""

    names: tuple[tuple[str, str], ...]
    """`(new name, what it is now)`"""

    def __call__(self, sample: dict[str, Any]) -> Sample:
        """Return the sample with its fields renamed; fields that no rule names stay."""
        renamed = Sample(sample)
        for new, spec in self.names:
            value = pick(sample, spec, REQUIRED)
            for name in alternatives(spec):
                old = find_field(name, sample)
                if old is not None:
                    renamed.pop(old, None)
                    break
            renamed[new] = value
        return renamed
