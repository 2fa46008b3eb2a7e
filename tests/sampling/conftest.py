from __future__ import annotations

import os

from hypothesis import settings

# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None, max_examples=3000 if os.environ.get("WIDS_SOAK") else 100)
settings.load_profile("untimed")
