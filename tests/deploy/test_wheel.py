from __future__ import annotations

import importlib.metadata
import io
import re
import sys
import zipfile
from pathlib import Path

import pytest

from deploy.wheels import make_wheel
from kakeya_ops.deploy.wheel import Checkout, Installed, find_source, pack, pin, requirement_name
from kakeya_ops.errors import EnvironmentFault

ROOT = Path(__file__).parents[2]
BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as archive:
        archive.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: small\\nVersion: 1.0\\n")
        archive.writestr("small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        archive.writestr("small-1.0.dist-info/RECORD", "")
        archive.writestr("small.py", "")
    return name
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project that builds itself, so that nothing has to be fetched."""
    root = tmp_path / "checkout"
    (root / "kakeya_ops/__pycache__").mkdir(parents=True)
    (root / "templates").mkdir()
    (root / "runbooks").mkdir()
    (root / "pyproject.toml").write_text(
        '[project]\nname = "small"\ndependencies = ["xxhash>=3"]\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (root / "backend.py").write_text(BACKEND)
    (root / "kakeya_ops/__init__.py").write_text("")
    (root / "kakeya_ops/__pycache__/x.pyc").write_text("")
    (root / "templates/node.j2").write_text("template")
    return root


class TestCheckout:
    def test_the_program_that_runs_here_is_one(self) -> None:
        source = find_source()
        assert isinstance(source, Checkout)
        assert any(requirement.startswith("mlx-lm") for requirement in source.requirements)

    def test_its_digest_changes_with_what_is_installed_and_with_nothing_else(self, checkout: Path) -> None:
        first = Checkout(checkout).digest
        (checkout / "README.md").write_text("words")
        (checkout / "kakeya_ops/__pycache__/x.pyc").write_text("compiled")
        (checkout / "kakeya_ops/.hidden.swp").write_text("an editor's")
        assert Checkout(checkout).digest == first
        (checkout / "templates/node.j2").write_text("another template")
        second = Checkout(checkout).digest
        (checkout / "kakeya_ops/__init__.py").rename(checkout / "kakeya_ops/other.py")
        assert len({first, second, Checkout(checkout).digest}) == 3

    def test_pip_builds_it_once(self, checkout: Path) -> None:
        source = Checkout(checkout)
        wheel = source.wheel()
        assert wheel.name == "small-1.0-py3-none-any.whl"
        assert "small.py" in zipfile.ZipFile(io.BytesIO(wheel.data)).namelist()
        assert source.wheel() is wheel

    def test_what_does_not_build_is_told_with_what_pip_says(self, checkout: Path) -> None:
        (checkout / "backend.py").write_text("raise RuntimeError('no compiler in sight')")
        with pytest.raises(EnvironmentFault, match="no compiler in sight") as caught:
            Checkout(checkout).wheel()
        assert "pip wheel --no-deps" in (caught.value.hint or "")


class TestInstalled:
    @pytest.fixture
    def installed(self, tmp_path: Path) -> Path:
        """A folder of packages with one that was installed, and what an installer adds to it."""
        site = tmp_path / "lib/site-packages"
        with zipfile.ZipFile(io.BytesIO(make_wheel(requires=("xxhash",)).data)) as archive:
            archive.extractall(site)
        info = site / "kakeya-9.9.dist-info"
        (tmp_path / "bin").mkdir()
        added = ["../../bin/kakeya", "__pycache__/kakeya_module.pyc", f"{info.name}/INSTALLER"]
        for name in added:
            (site / name).parent.mkdir(exist_ok=True)
            (site / name).write_text("added")
        record = info / "RECORD"
        record.write_text(record.read_text() + "".join(f"{name},,\n" for name in added))
        return info

    def test_the_wheel_it_was_installed_from_comes_back(self, installed: Path) -> None:
        source = Installed(importlib.metadata.PathDistribution(installed))
        assert source.wheel() == make_wheel(requires=("xxhash",))
        assert source.requirements == ("xxhash",)

    def test_its_digest_is_that_of_the_files(self, installed: Path) -> None:
        found = importlib.metadata.PathDistribution(installed)
        first = Installed(found).digest
        (installed.parent / "__pycache__/kakeya_module.pyc").write_text("compiled anew")
        assert Installed(found).digest == first
        (installed.parent / "kakeya_module.py").write_text("edited")
        assert Installed(found).digest != first

    def test_a_file_that_is_gone_is_told(self, installed: Path) -> None:
        (installed.parent / "kakeya_module.py").unlink()
        with pytest.raises(EnvironmentFault, match=r"kakeya_module.py cannot be read"):
            Installed(importlib.metadata.PathDistribution(installed)).wheel()

    def test_one_for_a_single_kind_of_machine_is_refused(self, installed: Path) -> None:
        (installed / "WHEEL").write_text("Tag: cp311-cp311-linux_x86_64\n")
        with pytest.raises(EnvironmentFault, match="one kind of machine"):
            Installed(importlib.metadata.PathDistribution(installed)).wheel()

    def test_a_program_that_is_neither_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", [])
        with pytest.raises(EnvironmentFault, match="neither a checkout nor installed"):
            find_source(tmp_path / "kakeya_ops")


def test_equal_content_makes_equal_wheels_with_a_whole_record() -> None:
    files = {"a.py": b"a", "b.py": b"b"}
    wheel = pack(files, "x-1.dist-info")
    assert wheel == pack(dict(reversed(files.items())), "x-1.dist-info")
    record = zipfile.ZipFile(io.BytesIO(wheel)).read("x-1.dist-info/RECORD").decode()
    assert record.splitlines()[0] == "a.py,sha256=ypeBEsobvcr6wjGzmiPcTaeG7_gUfE5yuYB3ha_uSLs,1"
    assert record.splitlines()[-1] == "x-1.dist-info/RECORD,,"


class TestPins:
    def test_everything_that_is_needed_is_pinned_as_it_is_here(self) -> None:
        pins = dict(line.split("==") for line in pin(find_source().requirements).splitlines())
        assert {"mlx", "mlx-lm", "transformers", "anyio", "pydantic-core"} <= set(pins)
        assert {"pytest", "kakeya", "ruff"}.isdisjoint(pins)
        assert all(version == importlib.metadata.version(name).split("+")[0] for name, version in pins.items())
        assert all(re.fullmatch(r"[A-Za-z0-9.!]+", version) for version in pins.values())

    def test_what_is_not_installed_here_is_left_to_pip(self) -> None:
        assert pin(["no-such-package>=1"]) == ""

    @pytest.mark.parametrize(
        ("requirement", "name"),
        [("mlx[cpu]>=0.32; sys_platform == 'linux'", "mlx"), ("PyYAML", "pyyaml"), ("a.b_c (>1)", "a-b-c")],
    )
    def test_names_are_normalized(self, requirement: str, name: str) -> None:
        assert requirement_name(requirement) == name
