"""Property tests here have no deadline for one example: machines that run tests are often busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("busy", deadline=None)
settings.load_profile("busy")
