"""``stat`` as macOS has it: ``-f FORMAT``, where GNU's means the file system."""

from __future__ import annotations

import os
import stat

from mac.codes import Failure
from mac.state import MacState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

USAGE = "usage: stat [-FLnq] [-f format | -l | -r | -s | -x] [-t timefmt] [file ...]"
CONSOLE = "/dev/console"
VARIANTS = "OSHLMDUX"
_KINDS = {
    stat.S_IFDIR: "Directory",
    stat.S_IFREG: "Regular File",
    stat.S_IFLNK: "Symbolic Link",
    stat.S_IFCHR: "Character Device",
    stat.S_IFBLK: "Block Device",
    stat.S_IFIFO: "Fifo File",
    stat.S_IFSOCK: "Socket",
}


def run(mac: MacState, arguments: list[str]) -> str:
    flags, form, paths = _parse(arguments)
    end = "" if "n" in flags else "\n"
    lines = []
    for path in paths:
        try:
            found = os.stat(path) if "L" in flags else os.lstat(path)
        except OSError as error:
            raise Failure(1, *([] if "q" in flags else [f"stat: {path}: stat: {error.strerror}"])) from None
        lines.append("".join(_fill(mac, path, found, form)) + end)
    return "".join(lines)


def _parse(arguments: list[str]) -> tuple[str, str, list[str]]:
    rest, flags, form = list(arguments), "", "%N"
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        plain, has_form, inline = word[1:].partition("f")
        if set(plain) - set("FLnq"):
            raise Failure(1, f"stat: illegal option -- {word[1]}", USAGE)
        flags += plain
        if has_form:
            form = inline or (rest.pop(0) if rest else "")
    return flags, form, rest


def _fill(mac: MacState, path: str, found: os.stat_result, form: str) -> Iterator[str]:
    text, *fields = form.replace("%%", "\0").split("%")
    yield text.replace("\0", "%")
    for field in fields:
        rest = field.lstrip(VARIANTS)
        variant, letter = field[: len(field) - len(rest)], rest[:1]
        values = _owners(mac, path, found, variant) if letter in ("u", "g") else _values(path, found, variant)
        if letter not in values:
            raise Failure(1, f"stat: {form}: bad format")
        yield values[letter] + rest[1:].replace("\0", "%")


def _owners(mac: MacState, path: str, found: os.stat_result, variant: str) -> dict[str, str]:
    uid = mac.screen_uid if path == CONSOLE else mac.own_uid if found.st_uid == os.getuid() else found.st_uid
    if "S" not in variant:
        return {"u": str(uid), "g": str(found.st_gid)}
    names = {0: "root", mac.own_uid: mac.user}
    return {"u": names.get(uid, str(uid)), "g": "wheel" if found.st_gid == 0 else "staff"}


def _values(path: str, found: os.stat_result, variant: str) -> dict[str, str]:
    mode = stat.S_IMODE(found.st_mode) & 0o777 if "L" in variant else found.st_mode
    kind = stat.S_IFMT(found.st_mode)
    return {
        "N": path,
        "p": stat.filemode(found.st_mode) if "S" in variant else f"{mode:o}",
        "z": str(found.st_size),
        "m": str(int(found.st_mtime)),
        "a": str(int(found.st_atime)),
        "c": str(int(found.st_ctime)),
        "B": str(int(found.st_mtime)),
        "i": str(found.st_ino),
        "d": str(found.st_dev),
        "l": str(found.st_nlink),
        "T": _KINDS.get(kind, "") if "H" in variant else {stat.S_IFDIR: "/", stat.S_IFLNK: "@"}.get(kind, ""),
        "Y": os.readlink(path) if kind == stat.S_IFLNK else "",
        "n": "\n",
        "t": "\t",
    }
