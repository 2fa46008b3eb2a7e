"""What `verify` can find, and how severe each is.

With an error, reading fails, or gives other bytes or samples than descriptor and index say. With a warning, everything is read
as it is indexed, but that is seldom what somebody meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Severity = Literal["error", "warning"]

KINDS: dict[str, tuple[Severity, str]] = {
    "unreadable": ("error", "the shard cannot be opened or fetched"),
    "damage": ("error", "it is not a tar, or is damaged; the message names the byte"),
    "size": ("error", "it has another size than the descriptor says"),
    "md5": ("error", "it has another MD5 than the descriptor says"),
    "too-few-samples": ("error", "it has fewer samples than the descriptor says"),
    "duplicate-field": ("error", "a sample has a field twice"),
    "broken-link": ("error", "a hard link does not lead to an earlier file"),
    "member-checksum": ("error", "a member's bytes have another checksum than the index pack says"),
    "index-differs": ("error", "the index pack fits the shard, but names other members"),
    "too-many-samples": ("warning", "it has more samples than the descriptor says; the rest is left out"),
    "index-unused": ("warning", "the index pack cannot be used for the shard, which is indexed again"),
    "scattered-key": ("warning", "a key occurs again later in the shard: its sample is split"),
    "repeated-key": ("warning", "a key is in two shards of the dataset"),
    "no-field": ("warning", "a file without an extension, which belongs to no sample"),
    "apple-double": ("warning", "a ._ file of macOS, which belongs to no sample"),
    "no-end-blocks": ("warning", "the archive's end is missing; it may have been cut between two members"),
    "bytes-after-end": ("warning", "bytes follow the end of the archive and are not read"),
    "other-fields": ("warning", "samples have another set of fields than most in the dataset"),
}
"""By kind: severity, and what it means."""

NUM_EXAMPLES = 5
"""Examples that a message lists at most."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of thing that is wrong with one shard."""

    kind: str
    """One of `KINDS`."""
    shard: str
    """URL of the shard, without secrets."""
    message: str
    """What was found, and where; with the first examples where there are many."""
    count: int = 1
    """How often."""

    @property
    def severity(self) -> Severity:
        """How severe it is."""
        return KINDS[self.kind][0]


def list_examples(texts: Sequence[str], count: int) -> str:
    """Return the first few of `count` things as text.

    Examples:
        >>> list_examples(["a", "b"], 2), list_examples(["a", "b"], 9)
        ('a, b', 'a, b, … (9 in all)')
    """
    shown = ", ".join(texts[:NUM_EXAMPLES])
    return shown if count <= min(len(texts), NUM_EXAMPLES) else f"{shown}, … ({count} in all)"
