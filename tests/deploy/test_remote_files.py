"""Small changes to files, on the files of this machine."""

from __future__ import annotations

from pathlib import Path

from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.remote_files import make_folder, point, remove, write_reversibly


def test_a_file_is_written_and_taken_back(context: HostContext) -> None:
    new, old = Path(context.places.root, "new"), Path(context.places.root, "old")
    old.write_bytes(b"before")
    write_reversibly(context, str(new), b"after", 0o600)
    write_reversibly(context, str(old), b"after", 0o600)
    assert (new.read_bytes(), old.read_bytes(), new.stat().st_mode & 0o777) == (b"after", b"after", 0o600)
    context.put_back()
    assert (new.exists(), old.read_bytes()) == (False, b"before")


def test_a_link_is_turned_in_one_step_also_when_it_leads_to_a_folder(context: HostContext) -> None:
    root = Path(context.places.root)
    for name in ("one", "two"):
        make_folder(context, str(root / "generations" / name), "700")
    for name in ("one", "two"):
        point(context, context.places.current, f"generations/{name}")
        assert Path(context.places.current).readlink() == Path(f"generations/{name}")
    assert sorted(path.name for path in root.iterdir()) == ["current", "generations"]
    assert not list((root / "generations/one").iterdir())


def test_names_that_mean_something_to_a_shell_are_names(context: HostContext) -> None:
    folder = f"{context.places.root}/$(touch x); `y` 'z' \"q\" *"
    make_folder(context, folder, "700")
    assert Path(folder).is_dir()
    remove(context, folder)
    assert list(Path(context.places.root).iterdir()) == []
