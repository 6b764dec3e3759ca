"""The files of a model folder on a host: what is there, what its hashes are, and how new ones take their places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kakeya_ops.deploy.context import HostContext
from kakeya_ops.remote.runner import Result

INCOMING = ".incoming"
"""Inside the model folder, so that a rename is enough; hidden, so that nobody takes it for a part of the model."""
REPLACED = ".replaced"
"""Where files of an earlier model wait until the new one has been proved."""
_CALL_SECONDS = 60.0
_SLOWEST_BYTES_PER_SECOND = 30e6
"""Of hashing: a disk that is read at less is broken."""
_BATCH_BYTES = 4 * 2**30
"""So much is hashed in one call: a person who gives up does not want to wait for 16 GB."""

# GNU's stat and BSD's differ; sha256sum is not on every Mac, nor shasum on every Linux.
_LIST = """
cd "$1" 2>/dev/null || exit 0
if stat -c %s . >/dev/null 2>&1; then find -L . -type f -exec stat -L -c '%s %Y %n' {} +
else find -L . -type f -exec stat -L -f '%z %m %N' {} +
fi 2>/dev/null
true
"""
_HASH = """
cd "$1" || exit 1
shift
if sha256sum </dev/null >/dev/null 2>&1; then sha256sum "$@"; else shasum -a 256 "$@"; fi
"""
_MAKE_FOLDERS = """
set -e
umask 077
mkdir -p "$1"
cd "$1"
shift
for name; do mkdir -p "$(dirname "$name")"; done
"""
# Both take: the model folder, the folders of new and of old files, files to put aside, "--", files to put in place.
_SWAP = """
set -e
cd "$1"
new=$2 old=$3
shift 3
rm -rf "$old"
while [ "$1" != -- ]; do
  mkdir -p "$old/$(dirname "$1")"
  mv -f "$1" "$old/$1"
  shift
done
shift
for name; do
  mkdir -p "$(dirname "$name")"
  mv -f "$new/$name" "$name"
done
rm -rf "$new"
"""
_RESTORE = """
set -e
cd "$1"
new=$2 old=$3
shift 3
aside=
while [ "$1" != -- ]; do
  [ -e "$old/$1" ] && aside=yes
  shift
done
shift
[ -n "$aside" ] || exit 0
for name; do
  [ -e "$name" ] || continue
  mkdir -p "$new/$(dirname "$name")"
  mv -f "$name" "$new/$name"
done
cd "$old"
find . ! -type d | while IFS= read -r name; do
  mkdir -p "../$(dirname "$name")"
  mv -f "$name" "../$name"
done
cd ..
rm -rf "$old"
"""


@dataclass(frozen=True)
class Seen:
    """A file as the host tells of it: its size, and its modification time in whole Unix seconds."""

    size_bytes: int
    mtime_seconds: int


@dataclass(frozen=True)
class HostFiles:
    """The files below `folder` on the host of `context`, by their path in it."""

    context: HostContext
    folder: str

    def list(self) -> dict[str, Seen]:
        """All files there, hidden ones too; links count as what they lead to."""
        found = {}
        for line in filter(None, self._run(_LIST, (), _CALL_SECONDS).text.split("\n")):
            size, mtime, name = line.split(" ", 2)
            found[name.removeprefix("./")] = Seen(int(size), int(mtime))
        return found

    def hash(self, sizes: Mapping[str, int]) -> dict[str, str]:
        """SHA-256 in hexadecimal of the files in `sizes`, which must exist and be about so many bytes long."""
        found = {}
        for batch in _batches(sizes):
            self.context.check()
            seconds = _CALL_SECONDS + sum(sizes[name] for name in batch) / _SLOWEST_BYTES_PER_SECOND
            for line in filter(None, self._run(_HASH, batch, seconds).text.split("\n")):
                digest, name = line.split(maxsplit=1)
                found[name.removeprefix("*").removeprefix("./")] = digest
        return found

    def make_folders(self, names: Iterable[str]) -> None:
        """Make the folders that files with `names` will lie in."""
        self._run(_MAKE_FOLDERS, names, _CALL_SECONDS)

    def swap_in(self, aside: Sequence[str], names: Sequence[str]) -> None:
        """Put the files `aside` away into `REPLACED`, and those with `names` from `INCOMING` in their places."""
        self._run(_SWAP, [INCOMING, REPLACED, *_dotted(aside), "--", *_dotted(names)], _CALL_SECONDS, dotted=False)

    def swap_back(self, aside: Sequence[str], names: Sequence[str]) -> None:
        """Take `swap_in` back, if it put anything aside; what was new waits in `INCOMING` again."""
        self._run(_RESTORE, [INCOMING, REPLACED, *_dotted(aside), "--", *_dotted(names)], _CALL_SECONDS, dotted=False)

    def _run(self, script: str, words: Iterable[str], seconds: float, *, dotted: bool = True) -> Result:
        words = _dotted(words) if dotted else tuple(words)
        argv = ("/bin/sh", "-c", script, "sh", self.folder, *words)
        return self.context.runner.run(argv, timeout_seconds=seconds, check=True)


def _dotted(names: Iterable[str]) -> tuple[str, ...]:
    """A name that begins with a dash is no option."""
    return tuple(f"./{name}" for name in names)


def _batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    batch: list[str] = []
    total = 0
    for name, size in sizes.items():
        if batch and total + size > _BATCH_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(name)
        total += size
    if batch:
        yield batch


__all__ = ["INCOMING", "REPLACED", "HostFiles", "Seen"]
