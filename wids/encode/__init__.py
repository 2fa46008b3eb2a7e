"""Values of fields to bytes, by the field's extension: the mirror of `wids.decode`."""

from wids.encode.encoder import Encoder

__all__ = ["Encoder"]
