"""The one shell script that reads a host, and the reader of what it prints.

The script is a constant: what it is about comes as arguments, so that nothing from the inventory is ever part of its
text. Each probe's output stands between two lines with a nonce that the output cannot know.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

_PREAMBLE = r"""
nonce=$1 label=$2 root=$3 key=$4 identity=$5 model=$6 python=$7 plist=$8
say() { printf '\n%s %s\n' "$nonce" "$*"; }
probe() { name=$1; shift; say begin "$name"; "$@" </dev/null 2>/dev/null; say end "$name" $?; }
there() { [ -e "$1" ] || [ -L "$1" ]; }
show() { there "$2" && probe "$1" cat "$2"; }
uid=$(id -u)
"""

_PROBES = r"""
probe user id -un
probe uid id -u
probe macos sw_vers -productVersion
probe chip sysctl -n machdep.cpu.brand_string
probe memory sysctl -n hw.memsize
probe console stat -f %u /dev/console
probe disk df -Pk "$HOME"
show plist "$plist"
show identity "$identity"
show served "$root/current/inventory.yaml"
show lock "$root/lock/owner.json"
there "$root/lock" && probe locked true
probe current readlink "$root/current"
probe previous readlink "$root/previous"
find_programs() {
  for done in "$root"/programs/*/complete; do
    # A venv leads to the Python that made it, which may have been removed since.
    [ -f "$done" ] && [ -x "${done%/complete}/venv/bin/python" ] && echo "$done"
  done
  true
}
probe programs find_programs
if there "$key"; then
  probe key_mode stat -f %Lp "$key"
  probe key_digest shasum -a 256 "$key"
else
  probe key_absent true
fi
find_model() { cd "$model" && find -L . -type f -exec stat -L -f '%z %m %N' {} +; }
if [ -d "$model" ]; then probe model find_model; else probe model_absent true; fi
show model_record "$root/model.json"
find_python() {
  for candidate in "$@"; do
    [ -x "$candidate" ] || continue
    # On a Mac that is no Python but what opens a window to offer one, which nobody asked for.
    [ "$candidate" = /usr/bin/python3 ] && command -v sw_vers >/dev/null && continue
    "$candidate" -c 'import sys; print(sys.executable); print(*sys.version_info[:2])' && return 0
  done
  return 1
}
if [ -n "$python" ]; then probe python find_python "$python"
else
  probe python find_python /opt/homebrew/bin/python3.13 /opt/homebrew/bin/python3.12 /opt/homebrew/bin/python3.11 \
    /usr/local/bin/python3.13 /usr/local/bin/python3.12 /usr/local/bin/python3.11 \
    /Library/Frameworks/Python.framework/Versions/3.1[123]/bin/python3 \
    "$HOME"/.local/bin/python3.1[123] "$HOME"/.local/share/uv/python/cpython-3.1[123]*/bin/python3
fi
quiet() { "$@" >/dev/null; }
for domain in gui user; do
  probe "domain_$domain" quiet launchctl print "$domain/$uid"
  probe "job_$domain" launchctl print "$domain/$uid/$label"
  probe "disabled_$domain" launchctl print-disabled "$domain/$uid"
done
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


@dataclass(frozen=True)
class Script:
    """The text for ``sh -s`` and its arguments; `nonce` marks the lines between the probes."""

    text: bytes
    nonce: str

    def argv(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """The command that reads the script from its input."""
        return ("/bin/sh", "-s", "--", self.nonce, *arguments)


def make_script(requests: Mapping[str, bytes]) -> Script:
    """The script, with one HTTP request for each of `requests`: a configuration for curl, without line ends of `nonce`.

    The requests come last, each in a here-document, because a signature belongs in no list of processes.
    """
    nonce = secrets.token_hex(16)
    parts = [_PREAMBLE.encode(), _PROBES.encode()]
    for name, config in requests.items():
        lines = (f"say begin {name}\ncurl --config - 2>/dev/null <<'{nonce}'\n", f"\n{nonce}\nsay end {name} $?\n")
        parts += [lines[0].encode(), config, lines[1].encode()]
    return Script(b"".join(parts), nonce)


def parse_findings(output: bytes, nonce: str) -> dict[str, Finding]:
    """What the probes found, by name; those that did not come to their end are missing."""
    mark = re.escape(nonce.encode())
    pattern = rb"\n" + mark + rb" begin (\w+)\n(.*?)\n" + mark + rb" end \1 (\d+)\n"
    found = re.finditer(pattern, b"\n" + output, re.DOTALL)
    return {match[1].decode(): Finding(int(match[3]), match[2]) for match in found}


__all__ = ["Finding", "Script", "make_script", "parse_findings"]
