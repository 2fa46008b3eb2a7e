"""JSON and YAML files that other tools write beside shards, to dictionaries. Nothing in them is executed."""

from __future__ import annotations

import re
from typing import Any

import orjson

from wids.descriptor.schema import describe_type
from wids.errors import DescriptorError

_FRONT_MATTER = re.compile(rb"\A\xef?\xbb?\xbf?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)


def parse_document(data: bytes, file: str) -> dict[str, Any]:
    """Parse a file as JSON if its name ends with `.json`, else as YAML; an empty file gives an empty dictionary.

    Args:
        data: Content of the file.
        file: Name of the file, also for messages.

    Raises:
        DescriptorError: The content cannot be parsed, or is not a mapping.

    Examples:
        >>> parse_document(b"a: [1, 2]", "x.yaml"), parse_document(b"", "x.yaml")
        ({'a': [1, 2]}, {})
    """
    content = _parse_json(data, file) if file.endswith(".json") else _parse_yaml(data, file)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise DescriptorError(f"{file}: holds {describe_type(content)}; it must have names and values")
    return content


def parse_front_matter(data: bytes, file: str) -> dict[str, Any] | None:
    r"""Parse the YAML block at the top of a Markdown file; return None when there is none.

    Args:
        data: Content of the file.
        file: Name of the file, for messages.

    Raises:
        DescriptorError: The block cannot be parsed.

    Examples:
        >>> parse_front_matter(b"---\nlicense: mit\n---\n# Title\n", "README.md")
        {'license': 'mit'}
        >>> parse_front_matter(b"# Title\n", "README.md")
    """
    match = _FRONT_MATTER.match(data)
    return None if match is None else parse_document(match[1], file)


def _parse_json(data: bytes, file: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise DescriptorError(
            f"{file}: is not JSON: {error.msg} at line {error.lineno}, column {error.colno}; write it again with the tool that made it"
        ) from error


def _parse_yaml(data: bytes, file: str) -> Any:
    import yaml

    try:
        # Both loaders are safe, they make plain values only; the one in C is faster.
        return yaml.load(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        problem = getattr(error, "problem", None) or type(error).__name__
        raise DescriptorError(
            f"{file}: is not YAML: {problem}{place}; write it again with the tool that made it"
        ) from error
