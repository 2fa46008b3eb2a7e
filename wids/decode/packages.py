"""Optional packages, imported when the first field that needs them is decoded."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, install: str) -> Any:
    """Import a module and return it.

    Args:
        module: The module, as in `"soundfile"`.
        install: What to install with pip if it is missing, as in `"wids[audio]"`.

    Raises:
        ModuleNotFoundError: The module, or a library that it loads, is not installed; the message says what to type.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: soundfile is installed, but libsndfile is not
        package = module.partition(".")[0]
        raise ModuleNotFoundError(
            f"this needs the package {package!r}, which cannot be imported ({error}); pip install '{install}'",
            name=package,
        ) from error
