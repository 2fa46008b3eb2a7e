"""Requirements of the site beyond those that its builder checks; `make docs` builds it strictly."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from pathlib import Path

import pytest

import wids
from wids.cli.command_line import make_parser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="an installed package has no pages")


def test_the_reference_has_every_public_name() -> None:
    reference = "".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))

    documented = set(re.findall(r"^(?:::: |.*\{ #)wids\.(?:[a-z.]+\.)?(\w+)(?: \})?$", reference, re.MULTILINE))

    assert set(dir(wids)) - documented == {"__version__"}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_relative_links_of_pages_outside_the_site_exist(page: str) -> None:
    links = LINK.findall((ROOT / page).read_text())

    assert [link for link in links if "://" not in link and not (ROOT / link.partition("#")[0]).exists()] == []


def test_links_to_other_sites_are_well_formed() -> None:
    links = [link for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")] for link in LINK.findall(path.read_text())]

    away = [link for link in links if ":" in link]
    assert [link for link in away if not re.fullmatch(r"https://[\w.-]+\.\w+(/\S*)?", link)] == []


def examples(parser: argparse.ArgumentParser) -> list[str]:
    """Return the examples in the help of a program and of all its commands."""
    whole = (parser.epilog or "").replace("\\\n", " ")
    lines = [line.strip() for line in whole.splitlines() if "widsindex" in line]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            lines += [line for command in action.choices.values() for line in examples(command)]
    return lines


def split_last_command(line: str) -> list[str]:
    """Return the words of the last command of a pipeline, without the redirection of its output; quotes are respected."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    is_output = False
    for token in lexer:
        if token == "|":
            words, is_output = [], False
        is_output = is_output or token == ">"
        if token != "|" and not is_output:
            words.append(token)
    return words


@pytest.mark.parametrize("line", examples(make_parser()))
def test_an_example_in_the_help_of_a_command_can_be_parsed(line: str) -> None:
    words = split_last_command(line)

    assert words[0] in {"widsindex", "wids"}
    assert callable(make_parser().parse_args(words[1:]).run)


@pytest.mark.parametrize("name", sorted(set(dir(wids)) - {"__version__"}))
def test_a_public_name_has_an_example(name: str) -> None:
    value = getattr(wids, name)

    assert ">>> " in value.__doc__ or issubclass(value, wids.WidsError)


def test_docstrings_have_no_code_outside_doctests() -> None:
    docstrings = {
        f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}": ast.get_docstring(node) or ""
        for path in (ROOT / "wids").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
    }

    looks_like_code = re.compile(
        r"```|doctest: *\+SKIP|^ *(?:import \w+|from \w+ import .*|\w+ = wids\..*|\$ .*)$", re.MULTILINE
    )
    assert [place for place, text in docstrings.items() if looks_like_code.search(text)] == []
