"""Puts this program on a host: a folder named after its content, with a venv of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kakeya_ops.deploy.context import HostContext, Step
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.deploy.material import program_folder_id
from kakeya_ops.deploy.remote_files import make_folder, remove
from kakeya_ops.deploy.wheel import PROJECT, WheelSource, find_source, pin, requirement_name
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import HostState, Python, Unknown
from kakeya_ops.remote.runner import Result

OLDEST = (3, 11)
"""The first version of Python that this program runs on."""
STUB = "/usr/bin/python3"
"""On a Mac only a note where to get Python, which opens a window that nobody may see."""
MARK = "complete"
"""The file that is written last: a folder without it is half-made."""
_ID_DIGITS = 12
_VENV_SECONDS = 180.0
_PIP_SECONDS = 1800.0
_CALL_SECONDS = 120.0
_TAIL_CHARACTERS = 600
_PIP = ("--no-input", "--disable-pip-version-check", "--quiet")
_HAS_ALL = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    importlib.metadata.version(name)
"""
_FOLDERS = """
import sysconfig
print(sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sep="\\n")
"""


@dataclass(frozen=True)
class WheelProgram:
    """A `ProgramSource`: a wheel, and the versions of what it depends on as a constraints file."""

    source: WheelSource
    constraints: str

    @cached_property
    def id(self) -> str:
        """See `ProgramSource`."""
        return hashlib.sha256(f"{self.source.digest}\n{self.constraints}".encode()).hexdigest()[:_ID_DIGITS]

    def steps(self, host: ResolvedHost, places: Places, state: HostState) -> tuple[Step, ...]:
        """See `ProgramSource`. Raises `DeployError` for a host without the right Python."""
        folder = program_folder_id(self.id, host.python)
        if folder in state.programs:
            return ()
        return (InstallProgram(self, folder, choose_python(host, state), given=host.python is not None),)


def find_program() -> WheelProgram:
    """The program that runs now, with the versions of what it runs with. Raises `EnvironmentFault`."""
    source = find_source()
    return WheelProgram(source, pin(source.requirements))


def choose_python(host: ResolvedHost, state: HostState) -> Python:
    """The interpreter that the venv is made with. Raises `DeployError` if there is none that will do."""
    found, wanted = state.python, ".".join(map(str, OLDEST))
    where = f"hosts.{host.name}.python is {host.python}" if host.python else "none was found in the usual places"
    hint = f"on the host: brew install python@3.12; or set hosts.{host.name}.python to an interpreter"
    if host.python == STUB and not isinstance(state.macos, Unknown):
        raise DeployError(host.name, f"{where}, which on a Mac is no Python but a note where to get one", hint=hint)
    if isinstance(found, Unknown):
        raise DeployError(host.name, f"no Python {wanted} or newer: {where} ({found.reason})", hint=hint)
    if found is None:
        raise DeployError(host.name, f"no Python {wanted} or newer: {where}", hint=hint)
    if found.version < OLDEST:
        have = ".".join(map(str, found.version))
        raise DeployError(host.name, f"{found.path} is Python {have}, and {wanted} or newer is needed", hint=hint)
    return found


@dataclass(frozen=True)
class InstallProgram:
    """A venv with the program in it, made by `python`, in the folder of programs that is called `folder_id`.

    If that interpreter was `given` by the inventory and has all that the program depends on, it is used as it is, and
    nothing is fetched; otherwise pip fetches the pinned versions.
    """

    program: WheelProgram
    folder_id: str
    python: Python
    given: bool

    @property
    def title(self) -> str:
        """See `Step`."""
        return f"install the program {self.folder_id} (venv of {self.python.path})"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        wheel = self.program.source.wheel()
        install = _Installation(context, self.program, self.python, context.places.program(self.folder_id))
        context.undo(f"program {self.folder_id}", lambda: remove(context, install.folder))
        remove(context, install.folder)
        make_folder(context, install.folder, "700")
        context.runner.write(f"{install.folder}/{wheel.name}", wheel.data, 0o600)
        install.make_venv()
        linked = self.given and install.has_dependencies()
        install.install(wheel.name, linked)
        install.prove()
        about = {"python": self.python.path, "version": self.python.version, "wheel": wheel.name, "linked": linked}
        context.runner.write(f"{install.folder}/{MARK}", json.dumps(about).encode() + b"\n", 0o600)


@dataclass(frozen=True)
class _Installation:
    """One folder in the making."""

    context: HostContext
    program: WheelProgram
    python: Python
    folder: str

    @property
    def venv_python(self) -> str:
        return f"{self.folder}/venv/bin/python"

    @cached_property
    def pip(self) -> tuple[str, ...]:
        """The pip of that Python, where it has one: a venv's own takes longer to make than all the rest."""
        if self._try((self.python.path, "-m", "pip", "--version")).status == 0:
            return self.python.path, "-m", "pip", "--python", self.venv_python
        return self.venv_python, "-m", "pip"

    def make_venv(self) -> None:
        without = ("--without-pip",) if self.pip[0] == self.python.path else ()
        argv = (self.python.path, "-m", "venv", *without, f"{self.folder}/venv")
        self._run(argv, _VENV_SECONDS, "no venv could be made", "that Python may lack its venv module")

    def has_dependencies(self) -> bool:
        needed = (text for text in self.program.source.requirements if "extra ==" not in text)
        names = sorted({requirement_name(requirement) for requirement in needed})
        return self._try((self.python.path, "-c", _HAS_ALL, *names)).status == 0

    def install(self, wheel: str, linked: bool) -> None:
        pip = (*self.pip, "install", *_PIP)
        if linked:
            self._run((*pip, "--no-deps", "--no-index", f"{self.folder}/{wheel}"), _PIP_SECONDS, "pip failed", None)
            self._link()
            return
        constraints = f"{self.folder}/constraints.txt"
        self.context.runner.write(constraints, self.program.constraints.encode(), 0o600)
        self.context.tell("pip fetches what the program depends on; the first time this takes minutes")
        hint = (
            "does the host reach a package registry? Without one, give "
            f"hosts.{self.context.host.name}.python an interpreter that has the packages already"
        )
        bounds = ("--retries", "2", "--timeout", "20", "--prefer-binary")
        argv = (*pip, *bounds, "--constraint", constraints, f"{self.folder}/{wheel}")
        self._run(argv, _PIP_SECONDS, "pip could not install the program", hint)

    def prove(self) -> None:
        """What the program needs is there, and it starts."""
        checked = self._try((*self.pip, "check"))
        misfits = [line for line in checked.text.splitlines() if line.lower().startswith(f"{PROJECT} ")]
        if misfits:
            host = self.context.host.name
            raise DeployError(
                host,
                f"the packages of {self.python.path} do not fit: {misfits[0]}",
                hint=f"update them, or leave hosts.{host}.python out to have others installed",
            )
        argv = (f"{self.folder}/venv/bin/{PROJECT}", "--version")
        self._run(argv, _CALL_SECONDS, "the installed program does not start", None)

    def _link(self) -> None:
        """Let the venv find the packages of the given Python, which may itself be a venv's.

        ``--system-site-packages`` would give those of the Python behind that venv.
        """
        given = self._run((self.python.path, "-c", _FOLDERS), _CALL_SECONDS, "Python failed", None)
        ours = self._run((self.venv_python, "-c", _FOLDERS), _CALL_SECONDS, "Python failed", None)
        folders = "".join(f"{folder}\n" for folder in dict.fromkeys(given.text.splitlines()))
        path = f"{ours.text.splitlines()[0]}/given_python.pth"
        self.context.runner.write(path, folders.encode(), 0o644)

    def _try(self, argv: Sequence[str]) -> Result:
        self.context.check()
        return self.context.runner.run(argv, timeout_seconds=_CALL_SECONDS)

    def _run(self, argv: Sequence[str], seconds: float, failure: str, hint: str | None) -> Result:
        self.context.check()
        result = self.context.runner.run(argv, timeout_seconds=seconds)
        if result.status != 0:
            said = (result.stderr or result.stdout).decode(errors="replace").strip()[-_TAIL_CHARACTERS:]
            raise DeployError(self.context.host.name, f"{failure} ({argv[0]}): {said or 'it said nothing'}", hint=hint)
        return result


__all__ = ["MARK", "OLDEST", "STUB", "InstallProgram", "WheelProgram", "choose_python", "find_program"]
