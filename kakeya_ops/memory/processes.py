"""Which processes of a host hold memory that a model would need, from what ``ps`` and ``top`` print.

Of a command line only a short name is kept: arguments may hold what is nobody's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kakeya_ops.memory.host import Process

LARGE_BYTES = 256 * 2**20
MOST_PROCESSES = 20
_NAME_CHARACTERS = 40
_KIB = 1024

_PS_LINE = re.compile(r"^[ \t]*(\d{1,9})[ \t]+(\d{1,12})[ \t]+(\S.*)$", re.MULTILINE | re.ASCII)
_TOP_HEADER = re.compile(r"^PID[ \t]+MEM[ \t]*$", re.MULTILINE)
_TOP_LINE = re.compile(r"^[ \t]*(\d{1,9})\*?[ \t]+(\d{1,9})([BKMG])[+-]?[ \t]*$", re.MULTILINE | re.ASCII)
_UNITS = {"B": 1, "K": _KIB, "M": _KIB**2, "G": _KIB**3}

# A blank before a dash or a slash ends the program's own path, which may have others in it.
_BUNDLE = re.compile(r"^/(?:(?! [-/]).)*?([^/]+)\.app/Contents/")
_INTERPRETER = re.compile(r"^(python[\d.]*|node|bun|uv|uvx|bash|zsh|sh)$", re.IGNORECASE)
_VALUED_OPTIONS = frozenset({"-W", "-X", "--require", "-r"})
_SERVER = re.compile(
    r"(^|[-. ])[ov]?mlx([-. ]|$)"
    r"|^(mlxcel|fastmlx|swama|ollama|lm studio|lms|llmster|llmworker|exo|vllm|llama-server)([-. ]|$)"
)
_KAKEYA = re.compile(r"(?:^|[/ ])kakeya(?:_ops[.\w]*)? (?:.* )?serve (?:-\S+ )*(head|worker|cache)\b")


def parse_processes(ps: str, top: str) -> tuple[Process, ...] | None:
    """The large processes and all model servers, the largest first; None when `ps` has no line of a process.

    `ps` has process id, resident set in KiB and command line, `top` process id and ``MEM``, which is the footprint that
    macOS charges a process with (top's manual page), GPU buffers included, rounded to the unit it is printed in. A
    process without a footprint is measured by its resident set, and says so.
    """
    lines = _PS_LINE.findall(ps)
    if not lines:
        return None
    footprints = dict(_footprints(top))
    processes = {pid: _process(int(pid), int(rss) * _KIB, line, footprints) for pid, rss, line in lines}
    kept = (process for process in processes.values() if _matters(process))
    largest_first = sorted(kept, key=lambda process: (-process.footprint_bytes, process.pid))
    return tuple(largest_first[:MOST_PROCESSES])


def _matters(process: Process) -> bool:
    return process.footprint_bytes >= LARGE_BYTES or process.is_mlx_server or process.is_kakeya


def _footprints(top: str) -> Iterator[tuple[int, int]]:
    header = _TOP_HEADER.search(top)
    if header is not None:
        for pid, count, unit in _TOP_LINE.findall(top, header.end()):
            yield int(pid), int(count) * _UNITS[unit]


def _process(pid: int, rss_bytes: int, line: str, footprints: dict[int, int]) -> Process:
    footprint = footprints.get(pid)
    kakeya = _KAKEYA.search(line)
    program = f"kakeya {kakeya[1]}" if kakeya else _program(line)
    return Process(
        pid=pid,
        name=_printable(program),
        footprint_bytes=rss_bytes if footprint is None else footprint,
        measure="rss" if footprint is None else "footprint",
        is_mlx_server=kakeya is None and _serves_models(program),
        is_kakeya=kakeya is not None,
    )


def _serves_models(program: str) -> bool:
    return _SERVER.search(program.lower().replace("_", "-")) is not None


def _program(line: str) -> str:
    """What runs: an application by its bundle, a script or module by its name, another program by its own."""
    bundle = _BUNDLE.match(line)
    if bundle and bundle[1] != "Python":
        return bundle[1]
    words = (line[bundle.end() :] if bundle else line).split() or [line]
    name = _last_part(words[0])
    if not _INTERPRETER.match(name):
        return name
    return _script(words[1:]) or name


def _script(words: list[str]) -> str | None:
    """The script or module that an interpreter was given."""
    rest = iter(words)
    for word in rest:
        if word == "-m":
            return next(rest, None)
        if word in _VALUED_OPTIONS:
            next(rest, None)
        elif word in ("-c", "-e"):
            return None
        elif not word.startswith("-") and word not in ("run", "tool"):
            return _last_part(word).removesuffix(".py")
    return None


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _printable(name: str) -> str:
    shown = "".join(character if character.isprintable() else "?" for character in name)
    return shown if len(shown) <= _NAME_CHARACTERS else f"{shown[: _NAME_CHARACTERS - 1]}…"


__all__ = ["LARGE_BYTES", "MOST_PROCESSES", "parse_processes"]
