"""Fill pages with facts from the program itself: its commands, the findings of `verify`, and the decoders of fields."""

from __future__ import annotations

import argparse
import re
from html import escape as escape_html
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError

from wids.cli.command_line import make_parser
from wids.decode.basic import PLAIN, WITH_PICKLE
from wids.decode.images import EXTENSIONS
from wids.tools.findings import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the placeholders in a page with what they stand for."""
    for place, describe in PLACES.items():
        if place in markdown:
            markdown = markdown.replace(place, describe())
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Have browsers wrap code between words: options not after a hyphen, and long names in the text between their parts."""
    html = re.sub(CELL, lambda cell: split_names(cell[0], LONG_IN_CELL), html)
    html = split_names(html, LONG_IN_TEXT)
    return re.sub(
        rf"{INLINE_CODE}|{WRAPPED_BLOCK}",
        lambda code: re.sub(OPTION, r'<span class="option">\g<0></span>', code[0]),
        html,
    )


def split_names(html: str, long_name: str) -> str:
    """Return HTML in which a line may end between the parts of a long name in code."""
    return re.sub(
        INLINE_CODE,
        lambda code: re.sub(long_name, lambda name: re.sub(JOINT, "<wbr>", name[0]), code[0]),
        html,
    )


def on_post_page(output: str, **_: Any) -> None:
    """Fail if a page would make a reader's browser fetch anything from another site.

    Raises:
        PluginError: It would.
    """
    fetched = re.search(
        r"""<(?:script|img|iframe|link(?=[^>]*stylesheet))\b[^>]*(?:src|href)=["']?(?:https?:)?//[^>]*>""",
        output,
    )
    if fetched is not None:
        raise PluginError(
            f"{fetched[0]}: a page fetches nothing from other sites; put the file into docs/"
        )


def describe_findings() -> str:
    """Return a table of the findings of `widsindex verify`."""
    rows = (
        f"| `{kind}` | {severity} | {meaning} |" for kind, (severity, meaning) in KINDS.items()
    )
    return "\n".join(["| finding | | meaning |", "|---|---|---|", *rows])


def describe_decoders() -> str:
    """Return a table of fields and their values, by the first lines of the decoders' docstrings."""
    extensions: dict[Any, list[str]] = {}
    for extension, decoder in (PLAIN | WITH_PICKLE).items():
        extensions.setdefault(decoder, []).append(f"`.{extension}`")
    rows = [
        f"| {' '.join(names)} | {summarize(decoder)} |" for decoder, names in extensions.items()
    ]
    images = " ".join(f"`.{extension}`" for extension in sorted(EXTENSIONS))
    return "\n".join(
        ["| field | value |", "|---|---|", f"| {images} | an image, as below |", *rows]
    )


def summarize(decoder: Any) -> str:
    """Return what a decoder returns: the first line of its docstring, with any URL in it as a link."""
    line = decoder.__doc__.splitlines()[0].removeprefix("Return ")
    return re.sub(r"\((https://[^)]+)\)", r"([format](\1))", line)


def describe_program() -> str:
    """Return the reference of all commands."""
    return "\n".join(describe_commands(make_parser(), "##"))


def describe_commands(parser: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    """Yield the Markdown of a parser's commands and of their subcommands."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public access to them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield f"\n{heading} {command.prog}\n\n{escape(command.description or '')}\n"
                usage = " ".join(command.format_usage().removeprefix("usage: ").split())
                yield f"```text\n{usage}\n```\n"
                yield from describe_arguments(command)
                yield from describe_commands(command, f"{heading}#")
                yield from describe_epilog(command.epilog or "")


def describe_epilog(epilog: str) -> Iterator[str]:
    """Yield the text and the examples at the end of a command's help."""
    more, _, examples = epilog.partition("examples:\n")
    if more:
        yield f"```text\n{more.strip()}\n```\n"
    if examples:
        commands = "".join(f"$ {line.strip()}\n" for line in examples.splitlines())
        yield f"```console\n{commands}```\n"


def describe_arguments(command: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a table of a command's own arguments, if it has any."""
    formatter = command._get_formatter()  # noqa: SLF001
    rows = []
    for action in command._actions:  # noqa: SLF001
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):  # noqa: SLF001
            continue
        names = ", ".join(f"`{name}`{{ .option }}" for name in action.option_strings)
        takes_value = action.nargs != 0
        value = action.metavar or (
            action.dest.upper() if action.option_strings else action.dest
        )
        if action.choices is not None and action.metavar is None:
            value = "{" + ",".join(map(str, action.choices)) + "}"
        name = " ".join(filter(None, (names, f"`{value}`" if takes_value else "")))
        rows.append(f"| {name} | {escape(formatter._expand_help(action))} |")  # noqa: SLF001
    if rows:
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows]) + "\n"


def escape(text: str) -> str:
    """Return text with what Markdown would interpret escaped, also for a table."""
    return re.sub(r"[\\`*_{}\[\]|]", r"\\\g<0>", escape_html(text, quote=False))


INLINE_CODE = r"<code>(?:[^<]|<wbr>)*</code>"
WRAPPED_BLOCK = r'<div class="language-(?:text|console)\b(?s:.*?)</div>'
"""Blocks of code whose lines site.css has wrapped."""
OPTION = r"(?<![\w-])--?[a-zA-Z][\w-]*(?![^<>]*>)"
CELL = r"<td\b(?s:.*?)</td>"
LONG_IN_CELL = r"[^\s&<>]{16,}"
"""What may wrap in a table; a longest part has to fit a column on a phone. Entities such as `&lt;` stay whole."""
LONG_IN_TEXT = r"[^\s&<>]{32,}"
"""What may wrap in the text: a line on a phone has room for 40 characters."""
JOINT = (
    r"(?<=[a-z])(?=[A-Z])|(?<=[\w)\]])(?=\.\w)|(?<=\w[_=:/])(?=[^\s_/])|(?<=[(\[{,])(?=[\w.*])"
)
"""Between the words of `ChunkedSampler`, before `.tar`, behind `_`, `=`, `:` and `/`, and behind a bracket."""

PLACES = {
    "<!-- commands -->": describe_program,
    "<!-- decoders -->": describe_decoders,
    "<!-- findings -->": describe_findings,
}
"""Placeholders in pages, and the functions that make their replacements."""
