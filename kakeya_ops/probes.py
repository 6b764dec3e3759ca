"""One shell script of probes that reads a host in one call, and the reader of what it prints.

A script is a constant: what it is about comes as arguments. Each probe's output stands between two lines with a nonce
that the output cannot know, so that no output is taken for another's.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

_PREAMBLE = r"""
nonce=$1
shift
say() { printf '\n%s %s\n' "$nonce" "$*"; }
probe() { name=$1; shift; say begin "$name"; ("$@") </dev/null 2>/dev/null; say end "$name" $?; }
there() { [ -e "$1" ] || [ -L "$1" ]; }
show() { there "$2" && probe "$1" cat "$2"; }
"""


@dataclass(frozen=True)
class Finding:
    """What one probe printed, and its exit status."""

    status: int
    output: bytes

    @property
    def text(self) -> str:
        """The output without the line end; bytes that are not UTF-8 are replaced."""
        return self.output.decode("utf-8", "replace").rstrip("\n")


MISSING = Finding(-1, b"")
"""That of a probe of which the host reported nothing: its script did not come so far."""


@dataclass(frozen=True)
class Script:
    """The text for ``sh -s``; `nonce` marks the lines between the probes."""

    text: bytes
    nonce: str

    def argv(self, arguments: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The command that reads the script from its input."""
        return ("/bin/sh", "-s", "--", self.nonce, *arguments)


def make_nonce() -> str:
    """A word that no output contains by chance or by guessing."""
    return secrets.token_hex(16)


def script_of(body: bytes, nonce: str) -> Script:
    """A script whose `body` calls ``probe NAME COMMAND…`` and, for a file that may be missing, ``show NAME PATH``.

    The body finds the arguments of `Script.argv` as ``$1`` and so on. A name is a word of letters, digits and ``_``.
    """
    return Script(_PREAMBLE.encode() + body, nonce)


def parse_findings(output: bytes, nonce: str) -> dict[str, Finding]:
    """What the probes found, by name; those that did not come to their end are missing."""
    mark = re.escape(nonce.encode())
    pattern = rb"\n" + mark + rb" begin (\w+)\n(.*?)\n" + mark + rb" end \1 (\d+)\n"
    found = re.finditer(pattern, b"\n" + output, re.DOTALL)
    return {match[1].decode(): Finding(int(match[3]), match[2]) for match in found}


__all__ = ["MISSING", "Finding", "Script", "make_nonce", "parse_findings", "script_of"]
