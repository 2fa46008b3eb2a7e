"""What a field holds to the bytes of its extension: the mirror of `wids.decode`."""

from wids.encode.encoder import Encoder

__all__ = ["Encoder"]
