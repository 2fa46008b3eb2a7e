from __future__ import annotations

import os

from hypothesis import settings

if os.environ.get("WIDS_SOAK"):
    settings.register_profile("soak", max_examples=3000)
    settings.load_profile("soak")
