"""Renders the property list of a service from ``templates/node.plist.j2``. Nothing here touches a host.

Every value is escaped for XML by the template engine, and what comes out is read again: a value that a property list
cannot carry unchanged is refused, not repaired.
"""

from __future__ import annotations

import plistlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.parsers.expat import ExpatError

import kakeya_ops
from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.launchd.domain import SESSION_TYPES, DomainKind, check_label

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATE = "node.plist.j2"
CAFFEINATE = ("/usr/bin/caffeinate", "-i")
"""Keeps the Mac, not its display, awake while the service runs. It becomes the service: signals reach the server."""

EXIT_SLACK_SECONDS = 10
"""Time between the end of a server's drain and launchd's SIGKILL: to close the pool and leave the interpreter."""

# Not in XML at all, or (U+000D) not kept by its parsers.
_NOT_CARRIED = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class ServiceValues:
    """What differs between two services. Raises `InputError` for values that no property list of ours can hold.

    `arguments` begins with the absolute path of the program; paths are those of the host, whole, without ``~``.
    `drain_seconds` is how long the server may take to finish its work after SIGTERM.
    """

    label: str
    domain: DomainKind
    arguments: tuple[str, ...]
    working_directory: str
    stdout_path: str
    stderr_path: str
    drain_seconds: int
    environment: Mapping[str, str] = field(default_factory=dict)
    prevent_sleep: bool = False
    throttle_seconds: int = 10
    open_files: int = 8192

    def __post_init__(self) -> None:
        check_label(self.label)
        if fault := next(self._faults(), None):
            raise InputError(f"the property list of {self.label} cannot be made: {fault}")

    @property
    def program_arguments(self) -> tuple[str, ...]:
        """``ProgramArguments``: as launchd will show them for the loaded service."""
        return (*CAFFEINATE, *self.arguments) if self.prevent_sleep else self.arguments

    @property
    def exit_timeout_seconds(self) -> int:
        """``ExitTimeOut``: seconds from SIGTERM to SIGKILL, more than the server needs."""
        return self.drain_seconds + EXIT_SLACK_SECONDS

    @property
    def session_type(self) -> str:
        """``LimitLoadToSessionType`` that goes with the domain."""
        return SESSION_TYPES[self.domain]

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """``EnvironmentVariables`` in a fixed order, so that equal values make equal bytes."""
        return tuple(sorted(self.environment.items()))

    def _faults(self) -> Iterator[str]:
        if not self.arguments:
            yield "it has no program"
        if self.drain_seconds < 0 or self.throttle_seconds < 1 or self.open_files < 1:
            yield "its numbers must be positive"
        for name, path in (
            ("the program", self.arguments[0]),
            ("the working directory", self.working_directory),
            ("the path of stdout", self.stdout_path),
            ("the path of stderr", self.stderr_path),
        ):
            if not path.startswith("/") or not path.isprintable():
                yield f"{name} must be an absolute path without control characters, not {path[:60]!r}"
        for index, argument in enumerate(self.arguments):
            yield from _text_faults(f"argument {index}", argument)
        for name, value in self.environment.items():
            if not _VARIABLE.fullmatch(name):
                yield f"{name[:60]!r} cannot be the name of an environment variable"
            yield from _text_faults(f"the environment variable {name}", value)


def _text_faults(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{name} must be text: launchd silently ignores anything else"
    elif found := _NOT_CARRIED.search(value):
        yield f"{name} has the character U+{ord(found[0]):04X}, which a property list cannot hold"


def find_templates() -> Path:
    """The folder of templates: in the package where it is installed, beside it in a checkout."""
    package = Path(kakeya_ops.__file__).parent
    folders = (package / "templates", package.parent / "templates")
    found = next((folder for folder in folders if (folder / TEMPLATE).is_file()), None)
    if found is None:
        raise EnvironmentFault(
            f"the template {TEMPLATE} is missing from this installation",
            hint="install kakeya again; its wheel carries the templates",
        )
    return found


def render_plist(values: ServiceValues) -> bytes:
    """The property list for `values`: UTF-8 XML, always the same bytes for the same values."""
    rendered = _compile(find_templates()).render(service=values).encode()
    _prove(rendered, values)
    return rendered


@cache
def _compile(folder: Path) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # slow to import, and status does without

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(TEMPLATE)


def _prove(rendered: bytes, values: ServiceValues) -> None:
    try:
        parsed = plistlib.loads(rendered, fmt=plistlib.FMT_XML)
    except (ExpatError, ValueError) as error:
        raise EnvironmentFault(f"the template {TEMPLATE} does not make a property list: {error}") from error
    meant = {
        "Label": values.label,
        "ProgramArguments": list(values.program_arguments),
        "EnvironmentVariables": dict(values.environment),
        "WorkingDirectory": values.working_directory,
        "StandardOutPath": values.stdout_path,
        "StandardErrorPath": values.stderr_path,
        "LimitLoadToSessionType": values.session_type,
        "ExitTimeOut": values.exit_timeout_seconds,
    }
    for key, value in meant.items():
        if parsed.get(key) != value:
            raise EnvironmentFault(f"the template {TEMPLATE} does not carry {key} as it is meant")


__all__ = ["CAFFEINATE", "EXIT_SLACK_SECONDS", "TEMPLATE", "ServiceValues", "find_templates", "render_plist"]
