"""Reads what ``launchctl print`` and ``print-disabled`` say, as far as it is needed.

Apple does not promise the form of either, so nothing here fails: what is not found is None or empty. Values that the
job chose, its arguments and environment, are printed raw and may look like any other line. launchd prints its own
fields before and after them, and only there are they read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_STATE = re.compile(r"\tstate = (.+)")
_PATH = re.compile(r"\tpath = (.+)")
_PROGRAM = re.compile(r"\tprogram = (.+)")
_PID = re.compile(r"\tpid = ([1-9][0-9]*)")
_RUNS = re.compile(r"\truns = ([0-9]+)")
_LAST_EXIT = re.compile(r"\tlast exit code = (.+)")
_LAST_SIGNAL = re.compile(r"\tlast terminating signal = (.+)")
_LAST_REASON = re.compile(r"\tlast exit reason = (.+)")
_AFTER_VALUES = re.compile(r"\t(domain|asid|minimum runtime|exit timeout|runs) = ")
_VARIABLE = re.compile(r"\t\t([A-Za-z_][A-Za-z0-9_]*) => (.*)")
_DISABLED = re.compile(r'\t\t"(.+)" => (disabled|enabled|true|false)')
_BLOCK_END = "\t}"


@dataclass(frozen=True)
class ServiceState:
    """A loaded service, as launchd sees it.

    `state` is launchd's word: ``running``, ``not running``, ``spawn scheduled``, ``waiting``, ``SIGTERMed``, or empty.
    `last_exit` belongs to the run before and is kept as text (``0``, ``(never exited)``, ``78: EX_CONFIG``).
    `environment` may hold secrets.
    """

    state: str = ""
    pid: int | None = None
    path: str | None = None
    program: str | None = None
    program_arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    runs: int | None = None
    last_exit: str | None = None
    last_signal: str | None = None
    last_exit_reason: str | None = None
    arguments_text: str = field(default="", repr=False)

    @property
    def running(self) -> bool:
        """True while its process lives and is not being stopped."""
        return self.state == "running" and self.pid is not None

    @property
    def stopping(self) -> bool:
        """True from ``bootout`` until the label is free."""
        return self.state.startswith("SIG")

    @property
    def last_exit_code(self) -> int | None:
        """The exit code of the run before, None when there was none."""
        match = re.match(r"-?[0-9]+", self.last_exit or "")
        return int(match[0]) if match else None

    @property
    def was_killed(self) -> bool:
        """True when a signal ended the run before: then there may be no exit code at all."""
        return self.last_signal is not None or self.last_exit_reason is not None

    @property
    def ending(self) -> str:
        """How the run before ended, in launchd's own words."""
        words = (self.last_exit_reason, self.last_signal, self.last_exit)
        return next((word for word in words if word), "unknown")

    def loaded_with(self, argv: Sequence[str]) -> bool:
        """True when it was loaded with exactly `argv`, whatever lines the arguments have."""
        return self.arguments_text == "\n".join(f"\t\t{argument}" for argument in argv)


def parse_print(text: str) -> ServiceState:
    """The service that ``launchctl print SERVICE`` describes in `text`."""
    lines = text.split("\n")
    begin = _find(lines, "\targuments = {", len(lines))
    end = _find(lines, _BLOCK_END, len(lines), begin) if begin < len(lines) else 0
    after = max((n for n, line in enumerate(lines) if n >= end and _AFTER_VALUES.match(line)), default=end)
    head, arguments, values, tail = lines[:begin], lines[begin + 1 : end], lines[end:], lines[after:]
    runs, pid = _last(_RUNS, values), _first(_PID, tail)
    return ServiceState(
        state=_first(_STATE, head) or "",
        pid=int(pid) if pid else None,
        path=_first(_PATH, head),
        program=_first(_PROGRAM, head),
        program_arguments=_join_arguments(arguments),
        environment=_parse_environment(values),
        runs=int(runs) if runs else None,
        last_exit=_first(_LAST_EXIT, tail),
        last_signal=_first(_LAST_SIGNAL, tail),
        last_exit_reason=_first(_LAST_REASON, tail),
        arguments_text="\n".join(arguments),
    )


def parse_print_disabled(text: str) -> dict[str, bool]:
    """Whether each label that ``launchctl print-disabled`` lists is disabled; older systems say true and false."""
    lines = text.split("\n")
    begin = _find(lines, "\tdisabled services = {", 0)
    end = _find(lines, _BLOCK_END, len(lines), begin)
    matches = filter(None, map(_DISABLED.fullmatch, lines[begin:end]))
    return {match[1]: match[2] in ("disabled", "true") for match in matches}


def _find(lines: Sequence[str], wanted: str, otherwise: int, begin: int = 0) -> int:
    return next((n for n in range(begin, len(lines)) if lines[n] == wanted), otherwise)


def _first(pattern: re.Pattern[str], lines: Sequence[str]) -> str | None:
    return next((match[1] for match in map(pattern.fullmatch, lines) if match), None)


def _last(pattern: re.Pattern[str], lines: Sequence[str]) -> str | None:
    return _first(pattern, lines[::-1])


def _join_arguments(lines: Sequence[str]) -> tuple[str, ...]:
    arguments: list[str] = []
    for line in lines:
        if line.startswith("\t\t") or not arguments:
            arguments.append(line.removeprefix("\t\t"))
        else:
            arguments[-1] += "\n" + line
    return tuple(arguments)


def _parse_environment(lines: Sequence[str]) -> dict[str, str]:
    begin = _find(lines, "\tenvironment = {", len(lines))
    found: dict[str, str] = {}
    name = ""
    for line in lines[begin + 1 : _find(lines, _BLOCK_END, len(lines), begin)]:
        if match := _VARIABLE.fullmatch(line):
            name = match[1]
            found[name] = match[2]
        elif name:
            found[name] += "\n" + line
    return found


__all__ = ["ServiceState", "parse_print", "parse_print_disabled"]
