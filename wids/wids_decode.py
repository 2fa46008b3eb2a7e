"""The import path `wids.wids_decode` of wids 0.1.11, kept for existing code: re-exports only."""

from wids.decode import (
    check_keys,
    decode_all_gz,
    decode_basic,
    decode_images_to_numpy,
    decode_images_to_pil,
    default_decoder,
)

__all__ = [
    "check_keys",
    "decode_all_gz",
    "decode_basic",
    "decode_images_to_numpy",
    "decode_images_to_pil",
    "default_decoder",
]
