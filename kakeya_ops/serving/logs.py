"""The log of a server: one line an event, for people on a terminal and as JSON everywhere else.

Fields are given as ``extra`` of the standard library's loggers. Whatever is logged, by whomever, a line is short, has
no control characters, and shows no key and no whole hash; of an error it tells the words only where these are known to
quote no prompt. Lines are written on a thread of their own: a terminal that takes nothing holds up nobody.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import logging.handlers
import queue
import re
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from kakeya_ops.errors import KakeyaError
from kakeya_ops.serving.log_limit import BoundedStderr

_WAITING_LINES = 4096
_JOIN_SECONDS = 2.0
_LONGEST_TEXT = 500
_FRAMES = 12
_CAUSES = 4
_QUOTES_NO_PROMPT = (KakeyaError, OSError, RuntimeError, MemoryError)
_FIRST = ("timestamp", "level", "event", "logger")
_HASH = re.compile(r"\b([0-9a-fA-F]{8})[0-9a-fA-F]{32,}\b")
_KEY = re.compile(r"(?i)\b(bearer\b\W*|mac=|key=|api[_-]?key\W+)\s*\S+")


def set_up_logs(verbosity: int) -> None:
    """Send every log of this process to standard error until it ends, unless somebody has set up logging before.

    `verbosity` counts ``-v``: without, what happens here and what goes wrong anywhere; once, our details and what
    happens in libraries; twice, their details too.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = BoundedStderr(formatter=make_formatter(human=sys.stderr.isatty()))
    # Only the listener writes. While it is held up in that, the process must be able to end, which takes the locks of
    # handlers and of buffers: so there are none.
    handler.setStream(_unbuffered(sys.stderr))
    handler.lock = None
    waiting: queue.Queue[Any] = queue.Queue(_WAITING_LINES)
    listener = _Listener(waiting, handler)
    root.addHandler(_OffThread(waiting))
    root.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)])
    logging.getLogger("kakeya_ops").setLevel(logging.DEBUG if verbosity else logging.INFO)
    listener.start()
    atexit.register(listener.stop)


def make_formatter(*, human: bool) -> logging.Formatter:
    """Renders records, those of other libraries too, as one line each."""
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=True, pad_event_to=24, sort_keys=False)
        if human
        else structlog.processors.JSONRenderer(default=str, ensure_ascii=True)
    )
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _describe_error,
            _clean,
        ],
        keep_exc_info=False,
        keep_stack_info=False,
    )


def _unbuffered(stream: TextIO) -> TextIO:
    raw = io.FileIO(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(raw, stream.encoding, "backslashreplace", write_through=True)


class _OffThread(logging.handlers.QueueHandler):
    """Puts records down and returns at once. What finds too many waiting is lost, and counted."""

    lost = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.lost += 1
            return
        if self.lost:
            lost, self.lost = self.lost, 0
            logging.getLogger(__name__).warning("log lines were lost", extra={"lines": lost})


class _Listener(logging.handlers.QueueListener):
    """Ends with the process, also where standard error takes nothing."""

    def stop(self) -> None:
        """Write what waits, for a short time."""
        with contextlib.suppress(queue.Full):
            self.enqueue_sentinel()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)


def _describe_error(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """An error as words and frames in fields of their own, instead of a traceback of many lines."""
    error = event.pop("exc_info", None)
    if isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        event["error"] = " from ".join(_words(one) for one in _chain(error))
        event["trace"] = " < ".join(reversed(_frames(error)))
    return event


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """`error` and what led to it."""
    for _ in range(_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__


def _words(error: BaseException) -> str:
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, _QUOTES_NO_PROMPT) and str(error) else kind


def _frames(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]


def _clean(logger: WrappedLogger, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Every text cleaned, whatever it is in, and first what every line has."""
    ordered = {key: event[key] for key in _FIRST if key in event} | dict(event)
    return {key: _clean_value(value) for key, value in ordered.items()}


def _clean_value(value: object) -> object:
    return value if isinstance(value, int | float | None) else clean(str(value))


def clean(text: str) -> str:
    """`text` without secrets, whole hashes or control characters, and not longer than a line may be."""
    text = _KEY.sub(r"\1 [redacted]", _HASH.sub(r"\1…", text))
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


__all__ = ["clean", "make_formatter", "set_up_logs"]
