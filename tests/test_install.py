"""What `pipx install .` gives: a wheel with all that the program needs beside its modules, which works anywhere."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from kakeya_ops.deploy.wheel import Checkout, Wheel
from mac.host import MacHost

ROOT = Path(__file__).parents[1]
SECONDS = 300.0
CARRIED = ("templates", "runbooks")
SYSTEMS = ("sys_platform == 'darwin'", "sys_platform == 'linux'")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    """Built by pip, as pipx has it built."""
    return Checkout(ROOT).wheel()


@dataclass(frozen=True)
class Installed:
    """A venv with the wheel in it, and a Mac to type its command on: an account that has nothing yet."""

    venv: Path
    mac: MacHost

    def __call__(self, *words: str, program: str = "kakeya") -> str:
        done = subprocess.run(
            [self.venv / "bin" / program, *words],
            cwd=self.mac.home,
            env=self.mac.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory, wheel: Wheel) -> Path:
    """What the program depends on is found where these tests have it; only the wheel itself is installed."""
    folder = tmp_path_factory.mktemp("install")
    python, file = folder / "venv/bin/python", folder / wheel.name
    file.write_bytes(wheel.data)
    run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    run(
        sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(file)
    )
    own = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *lenders()}
    Path(own, "borrowed.pth").write_text("".join(f"{place}\n" for place in sorted(places)))
    return folder / "venv"


@pytest.fixture
def installed(venv: Path, tmp_path: Path) -> Iterator[Installed]:
    with MacHost(tmp_path / "mac") as mac:
        yield Installed(venv, mac)


def lenders() -> set[str]:
    """The folders in which these tests find packages of others: a venv may itself borrow them."""
    return {place for place in sys.path if place.endswith("site-packages")}


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def metadata(wheel: Wheel) -> Message:
    with zipfile.ZipFile(io.BytesIO(wheel.data)) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def test_the_wheel_carries_templates_and_runbooks_as_they_are(wheel: Wheel) -> None:
    with zipfile.ZipFile(io.BytesIO(wheel.data)) as archive:
        carried = {
            name.removeprefix("kakeya_ops/"): archive.read(name)
            for name in archive.namelist()
            if name.startswith(tuple(f"kakeya_ops/{folder}/" for folder in CARRIED))
        }
    files = [file for folder in CARRIED for file in (ROOT / folder).rglob("*") if file.is_file()]
    assert carried == {file.relative_to(ROOT).as_posix(): file.read_bytes() for file in files}


def test_its_metadata_name_the_systems_and_pythons_it_is_for(wheel: Wheel) -> None:
    told = metadata(wheel)
    classifiers = set(told.get_all("Classifier", []))
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= classifiers
    assert {"Operating System :: MacOS", "Operating System :: POSIX :: Linux"} <= classifiers
    assert told["Requires-Python"] == ">=3.11"
    engine = [one for one in told.get_all("Requires-Dist", []) if one.startswith(("mlx<", "mlx>", "mlx["))]
    assert len(engine) == len(SYSTEMS)
    assert all(any(system in one for one in engine) for system in SYSTEMS)


def test_the_command_works_from_an_empty_folder_and_home(installed: Installed) -> None:
    where = installed("-c", "import kakeya_ops; print(kakeya_ops.__file__)", program="python")
    assert Path(where.strip()).is_relative_to(installed.venv)
    assert "worker-down" in installed("runbook", "--list")
    assert "--discover" in installed("init", "--help")
    assert [one.name for one in installed.mac.home.iterdir()] == []


def test_its_templates_and_runbooks_are_filled_in(installed: Installed, tmp_path: Path, tiny_llama: Path) -> None:
    """By `init`, `render` and `runbook`, for the Mac that they run on."""
    inventory = tmp_path / "first.yaml"
    here = f"{installed.mac.state.user}@{socket.gethostname()}"
    names = ("--head", f"head={here}", "--host", f"allens={here}")
    installed("init", *names, "--model", str(tiny_llama), "--no-measure", "--output", str(inventory))
    plist = installed("--inventory", str(inventory), "render", "head")
    assert "<string>dev.kakeya.home.head</string>" in plist
    assert "allens" in installed("--inventory", str(inventory), "runbook", "worker-down")
