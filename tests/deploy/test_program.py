"""Installing into real venvs; what is installed is a program of two lines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.bare_host import make_context, make_inventory, make_state
from deploy.wheels import ReadyWheel, make_wheel
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.deploy.program import STUB, InstallProgram, WheelProgram, choose_python, find_program
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import Python, Unknown
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.paramiko_runner import ParamikoRunner
from kakeya_ops.remote.ssh_config import SshTarget, resolve
from sshd import Knobs, SshServer

HERE = Python(sys.executable, (sys.version_info[0], sys.version_info[1]))
NOBODY = "http://127.0.0.1:9/simple"
"""An index where nothing answers."""


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostContext:
    monkeypatch.setenv("HOME", str(tmp_path))
    return make_context(LocalRunner("allens"), tmp_path, make_inventory(python=sys.executable))


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", NOBODY)


def folder_of(context: HostContext, program: WheelProgram) -> Path:
    return Path(context.places.program(program.id))


LINKED = WheelProgram(ReadyWheel(("xxhash",)), "")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostContext]:
    """`LINKED` on a host reached by real SSH, on top of a folder that an earlier attempt left half-made."""
    offline = Knobs(environment={"PIP_INDEX_URL": NOBODY})
    with SshServer(tmp_path_factory.mktemp("sshd"), offline) as server:
        runner = ParamikoRunner("allens", resolve(SshTarget("mac", config_file=server.write_config())), None)
        context = make_context(runner, server.home, make_inventory(python=sys.executable))
        folder_of(context, LINKED).mkdir(parents=True)
        (folder_of(context, LINKED) / "half-made").write_text("")
        InstallProgram(LINKED, LINKED.id, HERE, given=True).apply(context)
        yield context
        runner.close()


class TestLinked:
    """With a given Python that has everything: nothing is fetched."""

    def test_it_runs(self, installed: HostContext) -> None:
        command = folder_of(installed, LINKED) / "venv/bin/kakeya"
        done = subprocess.run([command, "serve"], capture_output=True, text=True, env={}, check=True)
        assert done.stdout == "kakeya 9.9 serve\n"

    def test_it_has_the_packages_of_the_given_python_even_if_that_is_a_venvs(self, installed: HostContext) -> None:
        python = folder_of(installed, LINKED) / "venv/bin/python"
        code = "import sys, xxhash, kakeya_module; print(sys.prefix); print(xxhash.__file__)"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, env={}, check=True)
        prefix, package = done.stdout.splitlines()
        assert prefix == str(folder_of(installed, LINKED) / "venv")
        assert not package.startswith(prefix)

    def test_nothing_of_the_earlier_attempt_is_left_and_the_mark_tells_what_was_done(
        self, installed: HostContext
    ) -> None:
        folder = folder_of(installed, LINKED)
        assert sorted(path.name for path in folder.iterdir()) == ["complete", "kakeya-9.9-py3-none-any.whl", "venv"]
        about = json.loads((folder / "complete").read_text())
        assert about == {
            "python": sys.executable,
            "version": list(HERE.version),
            "wheel": "kakeya-9.9-py3-none-any.whl",
            "linked": True,
        }

    @pytest.mark.usefixtures("_offline")
    def test_packages_that_do_not_fit_are_told_and_nothing_stays(self, context: HostContext) -> None:
        program = WheelProgram(ReadyWheel(("xxhash>=99",)), "")
        with pytest.raises(DeployError, match=r"do not fit: kakeya 9.9 .*xxhash.*99"):
            InstallProgram(program, program.id, HERE, given=True).apply(context)
        assert not (folder_of(context, program) / "complete").exists()
        assert not context.put_back()
        assert not folder_of(context, program).exists()


class TestFetched:
    @pytest.fixture
    def packages(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder of wheels instead of an index."""
        folder = tmp_path / "packages"
        folder.mkdir()
        for version in ("1.0", "2.0"):
            wheel = make_wheel("kakeya-dependency", version)
            (folder / wheel.name).write_bytes(wheel.data)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
        return folder

    def test_the_pinned_version_of_what_it_needs_is_installed(self, context: HostContext, packages: Path) -> None:
        program = WheelProgram(ReadyWheel(("kakeya-dependency",)), "kakeya-dependency==1.0\n")
        InstallProgram(program, program.id, HERE, given=True).apply(context)
        folder = folder_of(context, program)
        code = "import importlib.metadata as m; print(m.version('kakeya-dependency'))"
        python = folder / "venv/bin/python"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "1.0\n"
        assert json.loads((folder / "complete").read_text())["linked"] is False

    @pytest.mark.usefixtures("_offline")
    def test_a_host_that_reaches_no_index_is_told_what_helps(self, context: HostContext) -> None:
        program = WheelProgram(ReadyWheel(("kakeya-dependency",)), "")
        with pytest.raises(DeployError, match="pip could not install") as caught:
            InstallProgram(program, program.id, HERE, given=False).apply(context)
        assert "hosts.allens.python" in (caught.value.hint or "")
        assert not context.put_back()
        assert not folder_of(context, program).exists()


def test_a_program_that_does_not_start_is_not_complete(context: HostContext) -> None:
    program = WheelProgram(ReadyWheel(code="def run():\n    raise SystemExit('broken')\n"), "")
    with pytest.raises(DeployError, match=r"does not start .*broken"):
        InstallProgram(program, program.id, HERE, given=True).apply(context)
    assert not (folder_of(context, program) / "complete").exists()


def test_a_python_that_cannot_make_a_venv_is_told(context: HostContext, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ensurepip is not available'\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(DeployError, match=r"no venv could be made .*ensurepip is not available"):
        InstallProgram(WheelProgram(ReadyWheel(), ""), "p1", Python(str(python), (3, 12)), given=True).apply(context)


class TestPlanning:
    program = WheelProgram(ReadyWheel(), "a==1\n")
    new = Python("/opt/homebrew/bin/python3.12", (3, 12))

    def steps(self, home: Path, given: str | None = None, **facts: Any) -> tuple[Any, ...]:
        inventory = make_inventory(python=given)
        host = inventory.host("allens")
        return self.program.steps(host, Places.of(inventory, host, str(home)), make_state(home, **facts))

    def test_an_unchanged_program_is_not_installed_again(self, tmp_path: Path) -> None:
        assert self.steps(tmp_path, programs=frozenset({self.program.id}), python=None) == ()

    def test_another_one_is(self, tmp_path: Path) -> None:
        found = self.steps(tmp_path, programs=frozenset({"another"}), python=self.new)
        assert found == (InstallProgram(self.program, self.program.id, self.new, given=False),)
        (given,) = self.steps(tmp_path, "/opt/homebrew/bin/python3.12", python=self.new)
        assert (given.python, given.given) == (self.new, True)

    def test_the_same_one_made_with_another_python_is_another_folder(self, tmp_path: Path) -> None:
        (first,) = self.steps(tmp_path, "/opt/a", python=self.new)
        installed = frozenset({self.program.id, first.folder_id})
        assert self.steps(tmp_path, "/opt/a", python=self.new, programs=installed) == ()
        assert self.steps(tmp_path, None, python=self.new, programs=installed) == ()
        (second,) = self.steps(tmp_path, "/opt/b", python=self.new, programs=installed)
        assert second.folder_id not in installed

    def test_the_id_is_of_the_content_and_of_what_it_runs_with(self) -> None:
        ids = {
            WheelProgram(ReadyWheel(digest=digest), constraints).id
            for digest in ("1" * 64, "2" * 64)
            for constraints in ("a==1\n", "a==2\n")
        }
        assert len(ids) == 4
        assert find_program().id == find_program().id
        assert len(find_program().id) == 12

    @pytest.mark.parametrize(
        ("python", "given", "said"),
        [
            (None, None, "no Python 3.11 or newer: none was found in the usual places"),
            (None, "/opt/py", "no Python 3.11 or newer: hosts.allens.python is /opt/py"),
            (Unknown("it hangs"), "/opt/py", r"hosts.allens.python is /opt/py \(it hangs\)"),
            (Python("/usr/local/bin/python3", (3, 9)), None, "is Python 3.9, and 3.11 or newer is needed"),
            (Python(STUB, (3, 9)), STUB, "no Python but a note where to get one"),
        ],
    )
    def test_a_host_without_the_right_python_is_told_what_to_do(
        self, tmp_path: Path, python: Any, given: str | None, said: str
    ) -> None:
        host = make_inventory(python=given).host("allens")
        with pytest.raises(DeployError, match=said) as caught:
            choose_python(host, make_state(tmp_path, python=python))
        assert "brew install python" in (caught.value.hint or "")

    def test_elsewhere_the_systems_python_is_a_python(self, tmp_path: Path) -> None:
        host = make_inventory(python=STUB).host("allens")
        state = make_state(tmp_path, python=Python(STUB, (3, 11)), macos=Unknown("no sw_vers"))
        assert choose_python(host, state).path == STUB


@pytest.mark.slow
def test_this_program_itself_is_installed_and_starts(context: HostContext) -> None:
    """The real wheel, in a venv that borrows the packages of the Python that runs the tests."""
    program = find_program()
    InstallProgram(program, program.id, HERE, given=True).apply(context)
    command = folder_of(context, program) / "venv/bin/kakeya"
    code = "from kakeya_ops.launchd import template; import kakeya_ops; print(kakeya_ops.__file__)"
    assert "Usage" in subprocess.run([command, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    python = [command.with_name("python"), "-c", code]
    done = subprocess.run(python, capture_output=True, text=True, check=True, cwd=context.places.home)
    assert done.stdout.startswith(str(command.parents[1]))
