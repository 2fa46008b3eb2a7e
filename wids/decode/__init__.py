"""Decoding fields by their extension, and collating samples into batches."""

from wids.decode.collate import collate, stack_columns
from wids.decode.decoder import Decoder, OwnDecoderError, default_decoder
from wids.decode.legacy import check_keys, decode_all_gz, decode_basic, decode_images_to_numpy, decode_images_to_pil

__all__ = [
    "Decoder",
    "OwnDecoderError",
    "check_keys",
    "collate",
    "decode_all_gz",
    "decode_basic",
    "decode_images_to_numpy",
    "decode_images_to_pil",
    "default_decoder",
    "stack_columns",
]
