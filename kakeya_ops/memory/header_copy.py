"""A model directory on another machine, as far as its shape depends on it: the configuration, and headers of shards.

They are put into a folder here as files of the same size that are holes behind their headers, so that there is one
reader for both.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import re
import zlib
from pathlib import Path

from kakeya_ops.errors import ModelDirectoryError
from kakeya_ops.memory.reading import Shell

MOST_HEADER_BYTES = 64 * 2**20
"""A header that says to be longer is not believed, nor copied."""
_SECONDS = 60.0
_ABSENT = "absent"
_LINE = re.compile(rb"^(\d{1,19}) ([A-Za-z0-9+/=]*) ([^/\n]{1,255})$")

_SCRIPT = r"""
case $1 in "~") set -- "$HOME" "$2" ;; "~"/*) set -- "$HOME/${1#??}" "$2" ;; esac
cd -- "$1" 2>/dev/null || { echo absent; exit 0; }
tell() {
  printf '%d ' "$(wc -c < "$1")"
  head -c "$2" "$1" | gzip -c | base64 | tr -d '\n'
  printf ' %s\n' "$1"
}
for file in *.json; do
  [ -f "$file" ] && [ "$(wc -c < "$file")" -le 8388608 ] && tell "$file" 8388608
done
for file in *.safetensors *.gguf; do
  [ -f "$file" ] || continue
  length=$(head -c 8 "$file" | od -A n -t u8 | tr -d ' \n')
  case $length in ''|????????????*) length=0 ;; esac
  [ "$length" -le "$2" ] || length=0
  tell "$file" $((length + 8))
done
"""


def copy_headers(shell: Shell, path: str, folder: Path) -> bool:
    """Copy what `path` on the host that `shell` reaches has into `folder`; False where there is no such directory.

    Passes on the errors of `shell`. Raises `ModelDirectoryError` for an answer that cannot be understood.
    """
    argv = ("/bin/sh", "-c", _SCRIPT, "sh", path, str(MOST_HEADER_BYTES))
    output = shell.run(argv, timeout_seconds=_SECONDS).stdout
    if output.strip() == _ABSENT.encode():
        return False
    for line in output.splitlines():
        _write(line, path, folder)
    return True


def _write(line: bytes, path: str, folder: Path) -> None:
    found = _LINE.match(line)
    try:
        if found is None:
            raise ValueError(line[:60])
        size, name = int(found[1]), found[3].decode()
        data = _unpack(base64.b64decode(found[2], validate=True))
        with (folder / name).open("xb") as file:
            file.write(data)
            file.truncate(size)
    except (ValueError, OSError, EOFError, zlib.error, binascii.Error) as error:
        raise ModelDirectoryError(f"the headers in {path} could not be copied from the host: {error}") from error


def _unpack(packed: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
        return file.read(MOST_HEADER_BYTES + 8)


__all__ = ["MOST_HEADER_BYTES", "copy_headers"]
