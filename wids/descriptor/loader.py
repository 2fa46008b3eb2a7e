"""Anything that names shards to one list of shards with resolved URLs.

A descriptor may consist of components, each with a shardlist, a `source_url`, or components of its own. The functions that
read descriptors and list folders in stores are passed in, so that this layer knows no network. Only local folders and
patterns are looked up here.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wids.descriptor.folders import find_in_store, list_local, open_folder, read_folder
from wids.descriptor.schema import (
    check_list,
    check_object,
    check_rows,
    check_shard,
    check_text,
    check_weight,
    parse_json,
)
from wids.descriptor.urls import Base, expand_braces, folder_of, is_tar, local_path
from wids.errors import DescriptorError, redact

if TYPE_CHECKING:
    from wids.descriptor.folders import Fetch, ListFolder

Shard = dict[str, Any]

_DEEPEST = 32
"""Most levels of descriptors within descriptors, and of components within components."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A loaded descriptor: the shards of a dataset, and what is said about them."""

    spec: dict[str, Any]
    """The descriptor as read, including unknown keys, with the resolved shards as its `shardlist`."""
    shards: list[Shard]
    """One dictionary per shard: `url` (resolved), `nsamples` (None when unknown), `dataset`, and all other keys."""
    name: str
    """Name of the dataset; empty when it has none."""
    source: str | None
    """What names these shards on a command line; None when nothing does, for lists for example."""
    index: str | None
    """URL of the index pack; None when the descriptor names none."""
    rows: dict[str, Any] | None
    """The descriptor's `rows`, which select samples; None when it has all samples of its shards."""
    columns: dict[str, str]
    """Name of each metadata column to the URL of its file."""


def load_descriptor(
    shards: Any,
    *,
    fetch: Fetch,
    base: str | None = None,
    options: Mapping[str, Any] | None = None,
    dataset_name: str | None = None,
    split: str | None = None,
    list_folder: ListFolder = list_local,
) -> Descriptor:
    """Load the descriptor of the shards that `shards` names.

    Args:
        shards: A descriptor's path, URL, open file or parsed content; a folder; a pattern with braces or wildcards; a
            shard; a list of shards (`{"url", "nsamples"}`, `(url, nsamples)`, paths, URLs) or of descriptors.
        fetch: Returns the bytes of a descriptor, given its path or URL.
        base: Path or URL that relative URLs resolve against, instead of the descriptor's own `base` or folder.
        options: Entries that replace those of the top-level descriptor.
        dataset_name: Replaces the descriptor's name.
        split: Name of the split to load from a folder; None for the only one, or for all shards of a folder that is not
            divided.
        list_folder: Returns the names in a folder, given its path or URL; called for folders in stores.

    Raises:
        DescriptorError: A descriptor is malformed; the message names file and JSON path. Or a folder or pattern has no
            shards, a folder has several splits or not this one, or `split` is given for something that is not a folder.
        FetchError: A file cannot be read, or a folder cannot be listed.
        TypeError: `shards` is none of these.
    """
    loader = _Loader(fetch, base, split, list_folder)
    source: str | None = None
    if isinstance(shards, (str, os.PathLike)):
        source = os.fspath(shards)
        spec, found = loader.load_name(source, dict(options or {}))
        source = redact(source) if split is None else None
    elif hasattr(shards, "read"):
        loader.refuse_split("the file")
        spec, found = loader.load_file(shards, dict(options or {}))
    elif isinstance(shards, Mapping):
        loader.refuse_split("the descriptor")
        spec, found = loader.load_object({**shards, **(options or {})}, "descriptor", "", ())
    elif isinstance(shards, Iterable):
        spec = dict(options or {})
        found = [
            shard for place, item in enumerate(shards) for shard in loader.load_item(item, place, spec.get("base"))
        ]
    else:
        raise TypeError(
            f"shards is of type {type(shards).__name__}; it must be a path, URL, file, descriptor or list of shards"
        )
    name = dataset_name if dataset_name is not None else spec.get("name") or ""
    for shard in found:
        shard.setdefault("nsamples", None)
        if dataset_name is not None or not shard.get("dataset"):
            shard["dataset"] = name
    rows = check_rows(spec, source or "descriptor")
    spec = {key: value for key, value in spec.items() if key != "rows"} | {"name": name, "shardlist": found}
    return Descriptor(spec, found, name, source, spec.get("index"), rows, spec.get("columns") or {})


class _Loader:
    def __init__(self, fetch: Fetch, base: str | None, split: str | None, list_folder: ListFolder) -> None:
        self._fetch = fetch
        self._base = base
        self._split = split
        self._list_folder = list_folder

    def load_name(self, name: str, options: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], list[Shard]]:
        """Return descriptor and shards, given a path, URL or pattern."""
        folder = open_folder(name, self._list_folder, self._fetch)
        if folder is not None:
            return dict(options or {}), self._rebased(read_folder(folder, self._split)[1])
        self.refuse_split(redact(name))
        listed = _list_shards(name, self._list_folder)
        if listed is not None:
            return dict(options or {}), self._rebased([{"url": url} for url in listed])
        return self._load_source(name, (), options)

    def refuse_split(self, what: str) -> None:
        """Refuse a split of something that is not a folder.

        Args:
            what: What was to be loaded, for the message.

        Raises:
            DescriptorError: A split was asked for.
        """
        if self._split is not None:
            raise DescriptorError(f"{what}: is not a folder and has no split {self._split!r}; leave split out")

    def _rebased(self, shards: list[Shard]) -> list[Shard]:
        """Resolve the shards' URLs against the `base` argument, if one was given."""
        if self._base is not None:
            base = Base(self._base)
            for shard in shards:
                shard["url"] = base.join(shard["url"])
        return shards

    def load_file(self, file: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[Shard]]:
        """Return descriptor and shards, given an open file."""
        data = file.read()
        name = file.name if isinstance(getattr(file, "name", None), str) else "descriptor"
        content = parse_json(data.encode() if isinstance(data, str) else data, name)
        return self.load_object({**content, **options}, name, folder_of(name), ())

    def load_item(self, item: Any, place: int, base: str | None) -> list[Shard]:
        """Return the shards of one item of a list."""
        if isinstance(item, (str, os.PathLike)):
            return self._named(*self.load_name(os.fspath(item)))
        self.refuse_split(f"shards[{place}]")
        if isinstance(item, Mapping) and ("shardlist" in item or "datasets" in item):
            return self._named(*self.load_object(dict(item), f"shards[{place}]", "", ()))
        if isinstance(item, (tuple, list)) and len(item) == 2:
            item = {"url": item[0], "nsamples": item[1]}
        if not isinstance(item, Mapping):
            raise DescriptorError(
                f"shards[{place}] is {item!r}; it must be a path, a URL, a (url, nsamples) pair or a dictionary with them"
            )
        shard = dict(item)
        if isinstance(shard.get("url"), os.PathLike):
            shard["url"] = os.fspath(shard["url"])
        check_shard(shard, f"shards[{place}]", "")
        folder = self._base if self._base is not None else base
        if folder is not None:
            shard["url"] = Base(folder).join(shard["url"])
        return [shard]

    def _named(self, spec: dict[str, Any], shards: list[Shard]) -> list[Shard]:
        _refuse_rows(spec)
        for shard in shards:
            if spec.get("name") and not shard.get("dataset"):
                shard["dataset"] = spec["name"]
        return shards

    def _load_source(
        self, source: str, chain: tuple[str, ...], options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], list[Shard]]:
        """Return descriptor and shards, given the path or URL of a descriptor.

        Args:
            source: Path or URL.
            chain: Paths or URLs of the descriptors that lead to this one.
            options: Entries that replace those of the descriptor.
        """
        if source in chain:
            names = " -> ".join(redact(name) for name in (*chain, source))
            raise DescriptorError(
                f"{names}: descriptors refer to each other in a circle; remove one of these source_url"
            )
        if len(chain) >= _DEEPEST:
            raise DescriptorError(
                f"{redact(source)}: is nested {len(chain)} descriptors deep; at most {_DEEPEST} are allowed"
            )
        file = redact(source)
        content = {**parse_json(self._fetch(source), file), **(options or {})}
        place = local_path(source)
        return self.load_object(content, file, folder_of(source if place is None else place), (*chain, source))

    def load_object(
        self, content: dict[str, Any], file: str, folder: str, chain: tuple[str, ...]
    ) -> tuple[dict[str, Any], list[Shard]]:
        """Return descriptor and shards, given the content of a descriptor.

        Args:
            content: The parsed JSON.
            file: Name of the descriptor, for messages.
            folder: Path or URL of its folder; empty when it has none.
            chain: Paths or URLs of the descriptors that lead to this one, itself included.
        """
        content = dict(check_object(content, file))
        base = self._find_base(content, folder)
        shards = self._load_part(content, file, "", base, folder, chain)
        if content.get("index"):
            content["index"] = base.join(content["index"])
            for shard in shards:
                shard.setdefault("index", content["index"])
        if content.get("columns"):
            content["columns"] = {name: base.join(url) for name, url in content["columns"].items()}
        return content, shards

    def _find_base(self, content: dict[str, Any], folder: str) -> Base:
        if self._base is not None:
            return Base(self._base)
        own = content.get("base")
        return Base(Base(folder).join(own)) if own else Base(folder)

    def _load_part(
        self, part: dict[str, Any], file: str, path: str, base: Base, folder: str, chain: tuple[str, ...]
    ) -> list[Shard]:
        """Return the shards of a descriptor or of one of its components."""
        shards: list[Shard] = []
        if "shardlist" in part:
            for place, entry in enumerate(check_list(part, "shardlist", file, path)):
                check_shard(entry, file, f"{path}shardlist[{place}].")
                shards.append({**entry, "url": base.join(entry["url"])})
                if entry.get("offsets"):
                    shards[-1]["offsets"] = base.join(entry["offsets"])
        if "datasets" in part:
            for place, component in enumerate(check_list(part, "datasets", file, path)):
                shards += self._load_component(component, file, f"{path}datasets[{place}].", base, folder, chain)
        return shards

    def _load_component(
        self, component: dict[str, Any], file: str, path: str, base: Base, folder: str, chain: tuple[str, ...]
    ) -> list[Shard]:
        for name in ("name", "base", "source_url"):
            check_text(component, name, file, path)
        check_weight(component, file, path)
        if path.count("datasets[") > _DEEPEST:
            raise DescriptorError(
                f"{file}: {path[:-1]} is nested too deep; at most {_DEEPEST} levels of datasets are allowed"
            )
        title: str = component.get("name") or ""
        if component.get("source_url"):
            spec, shards = self._load_source(base.join(component["source_url"]), chain)
            _refuse_rows(spec)
            title = title or spec.get("name") or ""
        elif "shardlist" in component or "datasets" in component:
            own = self._find_base({"base": component["base"]}, folder) if component.get("base") else base
            shards = self._load_part(component, file, path, own, folder, chain)
        else:
            raise DescriptorError(f"{file}: {path[:-1]} has no shardlist, datasets or source_url; give it one")
        for shard in shards:
            if title:
                shard["dataset"] = title
            if component.get("weight") is not None:
                shard["weight"] = component["weight"]
        return shards


def _refuse_rows(spec: dict[str, Any]) -> None:
    """Raise for a descriptor that selects rows: it cannot be one of several."""
    if spec.get("rows") is not None:
        raise DescriptorError(
            f"descriptor {spec.get('name') or ''!r} selects rows and is one of several; load it alone, and join the "
            "datasets with wids.concat"
        )


def _list_shards(name: str, list_folder: ListFolder) -> list[str] | None:
    """Return the shards that a pattern or the name of a shard stands for; None when it names a descriptor."""
    path = local_path(name)
    if name.startswith("pipe:"):
        return [name]
    if path is not None and os.path.exists(path):  # file names may have braces  # noqa: PTH110
        return [name] if is_tar(name) else None
    expanded = expand_braces(name)
    if path is None:
        found = find_in_store(expanded, list_folder)
    elif glob.has_magic(name):
        found = [
            match
            for pattern in expanded
            for match in sorted(glob.glob(local_path(pattern) or pattern, recursive=True))  # noqa: PTH207
            if not os.path.basename(match).startswith("._")  # noqa: PTH119
        ]
    else:
        found = expanded
    if not found:
        raise DescriptorError(f"{redact(name)}: nothing matches this pattern; is the folder right?")
    return found if len(found) > 1 or found != expanded or is_tar(name) else None
