"""The one door to other machines: commands, files and uploads over ssh, or on this machine in the same way.

`kakeya_ops.remote.connect.connect` opens a connection as the user's own ssh configuration says. Everything above
sees `kakeya_ops.remote.runner.Runner` and the errors below `kakeya_ops.errors.RemoteError`, whatever carries it.
"""

from __future__ import annotations

__all__: list[str] = []
