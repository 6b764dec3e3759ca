"""The one shell script that reads a host. Nothing from the inventory is part of its text: it comes as arguments."""

from __future__ import annotations

from collections.abc import Mapping

from kakeya_ops.memory.reading import MEMORY_PROBES
from kakeya_ops.probes import Script, make_nonce, script_of

_PREAMBLE = r"""
label=$1 root=$2 key=$3 identity=$4 model=$5 python=$6 plist=$7 keys=$8
uid=$(id -u)
"""

FIND_KEYS = """
find_keys() { [ -f "$keys" ] || return 44; [ -O "$keys" ] && [ -r "$keys" ] && LC_ALL=C ls -ldL "$keys"; }
"""
"""Shows the file ``$keys``: ls has the same letters everywhere, the options of stat differ. See `read_api_keys`."""

_PROBES = r"""
probe user id -un
probe uid id -u
probe chip sysctl -n machdep.cpu.brand_string
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
show authorities "$key.ca.pem"
if there "$key.cert.pem"; then
  probe certificate_mode stat -f %Lp "$key.cert.pem"
  # Its key stays where it is.
  probe certificate sed -n '/-BEGIN CERTIFICATE-/,/-END CERTIFICATE-/p' "$key.cert.pem"
else
  probe certificate_absent true
fi
[ -z "$keys" ] || probe api_keys find_keys
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
probe_memory "$root"
"""


def make_script(requests: Mapping[str, bytes]) -> Script:
    """The script, with one HTTP request for each of `requests`: a configuration for curl, without line ends of `nonce`.

    The requests come last, each in a here-document, because a signature belongs in no list of processes.
    """
    nonce = make_nonce()
    parts = [(MEMORY_PROBES + _PREAMBLE + FIND_KEYS + _PROBES).encode()]
    for name, config in requests.items():
        lines = (f"say begin {name}\ncurl --config - 2>/dev/null <<'{nonce}'\n", f"\n{nonce}\nsay end {name} $?\n")
        parts += [lines[0].encode(), config, lines[1].encode()]
    return script_of(b"".join(parts), nonce)


__all__ = ["FIND_KEYS", "make_script"]
