"""The page of messages has a row for each message of the package, and for no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.messages import find_messages

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="an installed package has no pages")


def read_patterns() -> dict[str, re.Pattern[str]]:
    """Return patterns for the messages in the first column of the page's tables; `…` matches anything, `……` itself."""
    cells = re.findall(r"^\| (`.*?`) \| [^|]+ \| [^|]+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    pieces = [piece for cell in cells for piece in re.findall(r"`([^`]+)`", cell)]
    return {piece: re.compile(".*".join(map(re.escape, re.split("(?<!…)…(?!…)", piece)))) for piece in pieces}


def test_each_message_of_the_package_has_a_row() -> None:
    patterns = read_patterns().values()

    missing = [
        f"{place}: {message}"
        for message, place in find_messages(ROOT / "wids").items()
        if not any(pattern.search(message) for pattern in patterns)
    ]

    assert missing == [], "docs/troubleshooting.md has no row for these:\n" + "\n".join(missing)


def test_each_row_is_a_message_of_the_package() -> None:
    messages = list(find_messages(ROOT / "wids"))

    stale = [piece for piece, pattern in read_patterns().items() if not any(map(pattern.search, messages))]

    assert stale == [], "docs/troubleshooting.md has rows for these, and the package does not raise them"


def test_a_short_pattern_matches_a_single_message() -> None:
    messages = list(find_messages(ROOT / "wids"))
    short = {piece: pattern for piece, pattern in read_patterns().items() if len(re.findall(r"[a-z]", piece)) < 12}

    broad = {
        piece: found for piece, pattern in short.items() if len(found := list(filter(pattern.search, messages))) > 1
    }

    assert broad == {}, "docs/troubleshooting.md has these pieces, which are of several messages"
    assert short


def test_raised_returned_and_logged_messages_are_found(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        """
def f(self, name, error):
    logger.warning("%s: is odd", name)
    logger.debug("nobody sees this")
    raise FetchError(f"{name}: is " + "away")
    raise self._damaged("it ends")
    return TarFormatError(f"{name}: is damaged")
    raise FetchError(f"{name}: {error}")
    raise error
"""
    )

    assert set(find_messages(tmp_path)) == {"…: is odd", "…: is away", "it ends", "…: is damaged"}
