"""The second script that reads a host: what only the doctor wants to know. Nothing is changed by it."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_ops.probes import Script, make_nonce, script_of

PORT_SECONDS = 3

_PROBES = r"""
probe clock date +%s
probe filevault fdesetup status
probe power pmset -g
probe assertions pmset -g assertions
for wall in socketfilterfw /usr/libexec/ApplicationFirewall/socketfilterfw; do
  command -v "$wall" >/dev/null || continue
  probe firewall "$wall" --getglobalstate
  probe firewall_apps "$wall" --listapps
  break
done
probe interfaces ifconfig -a
number=0
while [ $# -gt 1 ]; do
  probe "route_$number" route -n get "$1"
  probe "port_$number" curl --silent --output /dev/null --noproxy '*' --http1.1 --max-time SECONDS "$2"
  number=$((number + 1))
  shift 2
done
"""


def make_script() -> Script:
    """The script; its arguments are an address and a URL for each endpoint that is to be tried."""
    return script_of(_PROBES.replace("SECONDS", str(PORT_SECONDS)).encode(), make_nonce())


def arguments(targets: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """``(address, URL)`` of each endpoint as arguments."""
    return tuple(word for target in targets for word in target)


__all__ = ["PORT_SECONDS", "arguments", "make_script"]
