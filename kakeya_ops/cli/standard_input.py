"""Standard input as a sign of life: whoever started this process holds its other end, and lets go of it by dying."""

from __future__ import annotations

import os
import signal
import threading

_READ_BYTES = 4096


def stop_when_input_ends(descriptor: int = 0) -> threading.Thread:
    """Send this process SIGTERM once `descriptor` has nothing more to say; what it says until then is dropped.

    So a server stops in its usual order, also where its parent was killed and could tell it nothing. Works on every
    system that has pipes. The thread, which is returned, keeps no process alive.
    """
    watcher = threading.Thread(target=_watch, args=(descriptor,), name="standard-input", daemon=True)
    watcher.start()
    return watcher


def _watch(descriptor: int) -> None:
    try:
        while os.read(descriptor, _READ_BYTES):
            pass
    except OSError:
        pass  # closed, or never open: there is nobody at the other end
    os.kill(os.getpid(), signal.SIGTERM)


__all__ = ["stop_when_input_ends"]
