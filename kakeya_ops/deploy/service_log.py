"""The service's own log on the host: its tail, and what is added to it, without secrets."""

from __future__ import annotations

from kakeya_ops.deploy.redact import redact
from kakeya_ops.errors import KakeyaError
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.runner import Runner
from kakeya_ops.secret import Secret

TAIL_LINES = 20


def tail_log(runner: Runner, places: Places, key: Secret | None, lines: int = TAIL_LINES) -> str:
    """The last `lines` of the log; why there are none, when they cannot be read. Never raises `KakeyaError`."""
    try:
        result = runner.run(["tail", "-n", str(lines), places.log])
    except KakeyaError as error:
        return f"(the log cannot be read: {error.message})"
    if result.status != 0:
        return "(the service has written no log)"
    return redact(result.text.rstrip("\n"), key)


__all__ = ["TAIL_LINES", "tail_log"]
