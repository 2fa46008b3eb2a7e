"""Packages that only some fields need, imported when the first of these fields is decoded."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, install: str) -> Any:
    """Return an imported module.

    Args:
        module: To import, as in `"soundfile"`.
        install: What pip is to be told when it is missing, as in `"wids[audio]"`.

    Raises:
        ModuleNotFoundError: It is not installed, or a library that it loads is not; says what to type.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: soundfile is there, its libsndfile is not
        package = module.partition(".")[0]
        raise ModuleNotFoundError(
            f"this needs the package {package!r}, which cannot be imported ({error}); pip install '{install}'",
            name=package,
        ) from error
