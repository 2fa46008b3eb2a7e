"""A Hugging Face dataset repository in WebDataset layout, or a plain folder of tars, to its splits.

The YAML block at the top of README.md may say which files make up which split:

    configs:
    - config_name: default
      data_files:
      - split: train
        path: "data/train-*.tar"

Otherwise the splits follow from names: `data/train-00000-of-00010.tar`, else folders named after a split, else files named
after a split; when there are none, everything is one split. The rules are those of `datasets` 4:
`src/datasets/data_files.py` in https://github.com/huggingface/datasets, described at
https://huggingface.co/docs/datasets/repository_structure. A plain folder of tars is read by the same rules, but its splits
are optional: a split can be chosen, and without one all shards are read.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from wids.descriptor.documents import parse_front_matter
from wids.descriptor.folders import Layout
from wids.descriptor.schema import describe_type
from wids.errors import DescriptorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wids.descriptor.folders import Folder

_README = "README.md"
_DEFAULT = "default"
_ONLY_SPLIT = "train"
"""Name of the only split when no name has one."""
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""Split to the words that stand for it in names of folders and files."""
_NUMBERED = re.compile(r"data/(\w+(?:\.\w+)*)-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*")


def read_layout(folder: Folder, kind: str | None = None) -> Layout:
    """Return the splits of a repository or of a plain folder of tars; they may be empty.

    Raises:
        DescriptorError: README.md is malformed.
        FetchError: README.md cannot be read.
    """
    said = None if kind == "tars" else _read_front_matter(folder)
    if said is None and kind is None:
        kind = "huggingface" if folder.location.startswith("hf://") else "tars"
    if kind == "tars" and folder.tars:  # shards in subfolders are taken for other datasets
        return Layout("tars", split_by_names(folder.tars), undivided=folder.tars)
    configs = (said or {}).get("configs")
    if configs is not None:
        splits = _split_by_configs(configs, folder.tars_below, f"{folder.name}/{_README}")
    else:
        splits = split_by_names(folder.tars_below if kind == "tars" else _public(folder.tars_below))
    return Layout(kind or "huggingface", splits)


def split_by_names(names: Iterable[str]) -> dict[str, list[str]]:
    """Divide shards into splits by their names.

    Examples:
        >>> split_by_names(["data/fold1-00000-of-00002.tar", "data/fold1-00001-of-00002.tar"]).keys()
        dict_keys(['fold1'])
        >>> split_by_names(["x/train/0.tar", "x/val/0.tar", "more.tar"])
        {'train': ['x/train/0.tar'], 'validation': ['x/val/0.tar']}
        >>> split_by_names(["a.tar"])
        {'train': ['a.tar']}
    """
    names = list(names)
    rules: tuple[Callable[[str], str | None], ...] = (_numbered_split, _folder_split, _file_split)
    for rule in rules:
        found = {name: rule(name) for name in names}
        there = {split for split in found.values() if split is not None}
        if there:
            order = [*(split for split in _WORDS if split in there), *sorted(there - _WORDS.keys())]
            return {split: [name for name in names if found[name] == split] for split in order}
    return {_ONLY_SPLIT: names}


def _numbered_split(name: str) -> str | None:
    match = _NUMBERED.fullmatch(name)
    return None if match is None else match[1]


def _folder_split(name: str) -> str | None:
    return _find_word(name.split("/")[:-1])


def _file_split(name: str) -> str | None:
    return _find_word([name.rpartition("/")[2]])


def _find_word(parts: list[str]) -> str | None:
    words = {word for part in parts for word in re.split(r"[-._ 0-9]", part)}
    return next((split for split, synonyms in _WORDS.items() if words.intersection(synonyms)), None)


def _read_front_matter(folder: Folder) -> dict[str, Any] | None:
    if _README not in folder.names:
        return None
    return parse_front_matter(folder.read(_README), f"{folder.name}/{_README}")


def _split_by_configs(configs: Any, names: list[str], file: str) -> dict[str, list[str]]:
    """Return the splits of the default configuration, and those of others as `configuration/split`."""
    if not isinstance(configs, list) or not all(isinstance(config, dict) for config in configs):
        raise DescriptorError(f"{file}: configs is {describe_type(configs)}; it must be a list of configurations")
    titles = [str(config.get("config_name") or _DEFAULT) for config in configs]
    default = next((title for title, config in zip(titles, configs, strict=True) if config.get("default")), None)
    default = default or (titles[0] if len(titles) == 1 else _DEFAULT)
    splits: dict[str, list[str]] = {}
    for number, (title, config) in enumerate(zip(titles, configs, strict=True)):
        folder = "".join(f"{part}/" for part in _split_path(str(config.get("data_dir") or "")))
        inside = [name.removeprefix(folder) for name in names if name.startswith(folder)]
        patterns = _read_data_files(config.get("data_files"), f"{file}: configs[{number}].data_files")
        if patterns is None:
            found = split_by_names(_public(inside))
        else:
            found = {split: _matching(inside, some) for split, some in patterns.items()}
        prefix = "" if title == default else f"{title}/"
        splits |= {prefix + split: [folder + name for name in shards] for split, shards in found.items()}
    return splits


def _read_data_files(data_files: Any, where: str) -> dict[str, list[str]] | None:
    """Return the patterns of each split, given a pattern, a list of patterns, a mapping, or a list of `split` and `path`."""
    if data_files is None:
        return None
    if isinstance(data_files, list) and any(isinstance(item, dict) for item in data_files):
        if not all(isinstance(item, dict) and {"split", "path"} <= item.keys() for item in data_files):
            raise DescriptorError(f"{where}: each must have a split and a path")
        data_files = {item["split"]: item["path"] for item in data_files}
    if not isinstance(data_files, dict):
        data_files = {_ONLY_SPLIT: data_files}
    patterns = {str(split): [path] if isinstance(path, str) else path for split, path in data_files.items()}
    for paths in patterns.values():
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise DescriptorError(
                f"{where}: a path is {describe_type(paths)}; it must be a pattern or a list of patterns"
            )
    return patterns


def _matching(names: list[str], patterns: list[str]) -> list[str]:
    """Return the names that match any of the patterns, in the order of the patterns."""
    parts = {name: name.split("/") for name in names}
    found = [name for pattern in map(_split_path, patterns) for name in names if _matches(parts[name], pattern)]
    return list(dict.fromkeys(found))


def _matches(parts: list[str], pattern: list[str]) -> bool:
    return _count_private(parts) == _count_private(pattern) and _fits(parts, pattern)


def _public(names: Iterable[str]) -> list[str]:
    """Return the names that are not in a private folder, whose name begins with two underscores."""
    return [name for name in names if not _count_private(name.split("/"))]


def _count_private(parts: list[str]) -> int:
    """Return the number of private folders in a path; a pattern must have the same number to match it."""
    return sum(part.startswith("__") for part in parts[:-1])


def _split_path(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _fits(parts: list[str], patterns: list[str]) -> bool:
    """Return whether the parts of a path match those of a pattern; `**` matches any number of parts."""
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return len(patterns) == 1 or any(_fits(parts[skipped:], patterns[1:]) for skipped in range(len(parts)))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _fits(parts[1:], patterns[1:])
