"""A model directory as files: what it holds, what its configuration says, and digests of all that KV depends on.

Nothing here loads a model or needs MLX.
"""

from __future__ import annotations

from kakeya_ops.model.directory import ModelDirectory
from kakeya_ops.model.manifest import Revision, read_revision

__all__ = ["ModelDirectory", "Revision", "read_revision"]
