"""Small changes to files on a host, each with its way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kakeya_ops.deploy.context import HostContext

_REMOVE_SECONDS = 600.0
"""For ten thousands of small files, which is what a program's venv is."""
# -h: rename over the link itself, not into the folder that it leads to. GNU's mv says -T.
_POINT = """
while [ $# -gt 0 ]; do
  ln -sfn "$1" "$2.part" || exit
  mv -hf "$2.part" "$2" 2>/dev/null || mv -fT "$2.part" "$2" || exit
  shift 2
done
"""


def make_folder(context: HostContext, path: str, mode: str) -> None:
    """Make the folder at `path` and those above it; an existing one keeps its mode."""
    make_folders(context, {path: mode})


def make_folders(context: HostContext, modes: Mapping[str, str]) -> None:
    """Make the folders that `modes` names, each with its mode; see `make_folder`."""
    script = 'while [ $# -gt 0 ]; do /bin/mkdir -p -m "$1" "$2" || exit; shift 2; done'
    words = [word for path, mode in modes.items() for word in (mode, path)]
    context.runner.run(["/bin/sh", "-c", script, "sh", *words], check=True)


def remove(context: HostContext, *paths: str) -> None:
    """Remove files and folders; it does not matter whether they exist."""
    context.runner.run(["/bin/rm", "-rf", "--", *paths], check=True, timeout_seconds=_REMOVE_SECONDS)


def write_reversibly(context: HostContext, path: str, data: bytes, mode: int) -> None:
    """Write the file whole or not at all; what it was before is noted as the way back."""
    context.undo(f"write {path}", restoring(context, path, context.runner.read(path), mode))
    context.runner.write(path, data, mode)


def restoring(context: HostContext, path: str, old: bytes | None, mode: int) -> Callable[[], None]:
    """What makes the file at `path` hold `old` again; None removes it."""

    def restore() -> None:
        if old is None:
            remove(context, path)
        elif context.runner.read(path) != old:
            context.runner.write(path, old, mode)

    return restore


def point(context: HostContext, link: str, target: str) -> None:
    """Let the symbolic link at `link` lead to `target`, in one step."""
    point_all(context, {link: target})


def point_all(context: HostContext, targets: Mapping[str, str]) -> None:
    """Let each symbolic link of `targets` lead to its target, in that order; see `point`."""
    words = [word for link, target in targets.items() for word in (target, link)]
    context.runner.run(["/bin/sh", "-c", _POINT, "sh", *words], check=True)


__all__ = ["make_folder", "make_folders", "point", "point_all", "remove", "restoring", "write_reversibly"]
