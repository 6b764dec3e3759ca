"""Imports paramiko without what only its reader of ssh configurations needs, which takes as long as all the rest.

That reader is not used: ``ssh -G`` says what a configuration means.
"""

from __future__ import annotations

import importlib
import sys

_NEEDLESS = "invoke"


def import_paramiko() -> None:
    """Import paramiko, if nobody has, as where that other package is not installed; later imports of it still work."""
    if _NEEDLESS in sys.modules or "paramiko" in sys.modules:
        return
    sys.modules[_NEEDLESS] = None  # type: ignore[assignment]  # so says the import system that there is none
    try:
        importlib.import_module("paramiko")
    finally:
        del sys.modules[_NEEDLESS]


__all__ = ["import_paramiko"]
