"""What a line between two Macs is worth: round trip and rate, by what every Mac has.

For the rate one Mac listens with ``nc`` and throws away what comes, the other sends zeros to it. Neither listens longer
than a few seconds, and a port is only taken if it is free.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kakeya_ops.errors import KakeyaError
from kakeya_ops.remote.runner import Runner

PORT = 51999
_PINGS = 5
_SECONDS = 15.0
_RTT = re.compile(r"= [\d.]+/([\d.]+)/")
_REAL = re.compile(r"^real\s+([\d.]+)", re.MULTILINE)
_LISTEN = 'perl -e "alarm shift; exec @ARGV" 12 nc -l "$1" >/dev/null'
_SEND = r"""
tries=0
while :; do
  (time -p dd if=/dev/zero bs=1048576 count="$3" 2>/dev/null | nc -w 5 "$1" "$2") 2>&1 && break
  tries=$((tries + 1))
  [ "$tries" -lt 20 ] || exit 1
  sleep 0.1
done
"""
_FIRST_MEGABYTES, _NEXT_MEGABYTES = 8, 256
_TOO_QUICK_SECONDS = 0.5
_MEBIBYTE = 2**20


@dataclass(frozen=True)
class Line:
    """From one Mac to an address of another. What could not be measured is None."""

    address: str
    rtt_seconds: float | None
    bytes_per_second: float | None


def measure_line(sender: Runner, receiver: Runner, address: str, port: int = PORT) -> Line:
    """Measure the line from the Mac behind `sender` to `address`, which is the one behind `receiver`."""
    rtt = _measure_rtt(sender, address)
    if rtt is None:
        return Line(address, None, None)
    rate, seconds = _measure_rate(sender, receiver, (address, port), _FIRST_MEGABYTES)
    if rate is not None and seconds < _TOO_QUICK_SECONDS:
        rate = _measure_rate(sender, receiver, (address, port), _NEXT_MEGABYTES)[0] or rate
    return Line(address, rtt, rate)


def _measure_rtt(sender: Runner, address: str) -> float | None:
    try:
        result = sender.run(["ping", "-c", str(_PINGS), "-i", "0.2", address], timeout_seconds=_SECONDS)
    except KakeyaError:
        return None
    match = _RTT.search(result.text)
    return float(match[1]) / 1000 if match else None


def _measure_rate(
    sender: Runner, receiver: Runner, target: tuple[str, int], megabytes: int
) -> tuple[float | None, float]:
    """The rate, and how long it took to measure it."""
    address, port = target
    with ThreadPoolExecutor(1) as threads:
        listening = threads.submit(_run, receiver, ["/bin/sh", "-c", _LISTEN, "sh", str(port)])
        said = _run(sender, ["/bin/bash", "-c", _SEND, "bash", address, str(port), str(megabytes)])
        listening.result()
    match = _REAL.findall(said or "")
    seconds = float(match[-1]) if match else 0.0
    return (megabytes * _MEBIBYTE / seconds if seconds > 0 else None), seconds


def _run(runner: Runner, argv: list[str]) -> str | None:
    try:
        result = runner.run(argv, timeout_seconds=2 * _SECONDS)
    except KakeyaError:
        return None
    return result.text if result.status == 0 else None


__all__ = ["PORT", "Line", "measure_line"]
