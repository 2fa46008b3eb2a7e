"""The descriptor of a selection to the rows that it selects, for those who read shards and not datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.fingerprint import basename, digest_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from wids.descriptor import Descriptor


def selected_rows(descriptor: Descriptor, counts: Sequence[int]) -> NDArray[np.int64] | None:
    """Return `(num_rows,)` int64, where the samples of a selection lie among all of its shards; None where all are meant.

    Args:
        descriptor: Of the shards.
        counts: How many samples each has.

    Raises:
        DescriptorError: The rows are not those of these shards.
    """
    if descriptor.rows is None:
        return None
    from wids.dataset.rows import to_array
    from wids.dataset.stored_rows import rows_from_json

    fingerprint = digest_data(map(basename, descriptor.shards), counts)
    return to_array(rows_from_json(descriptor.rows, sum(counts), fingerprint, descriptor.source or "descriptor"))
