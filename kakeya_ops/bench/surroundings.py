"""What is known of the path to a worker besides Kakeya: measured here on loopback, or told by the operator."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.raw import loopback_bytes_per_second
from kakeya_ops.bench.report import LinkLine

_MOST_BYTES = 256 * 1024 * 1024


def raw_link(line: LinkLine, plan: BenchPlan, payloads: Sequence[int]) -> LinkLine:
    """`line` with the rate of a plain TCP socket on the same path, measured with as many bytes as `payloads` have."""
    if plan.link_bytes_per_second:
        return replace(line, raw=plan.link_bytes_per_second, raw_source="as told")
    count = min(max(payloads, default=0), _MOST_BYTES)
    if not count or not is_loopback(plan.url) or not _is_loopback_address(line.address):
        return line
    try:
        return replace(line, raw=loopback_bytes_per_second(count), raw_source="loopback, two threads")
    except OSError as error:
        return replace(line, raw_source=f"not measured: {error}")


def is_loopback(url: str) -> bool:
    """Whether the server at `url` runs on this machine, as far as its address says so."""
    return _is_loopback_address(urlsplit(url).hostname or "")


def _is_loopback_address(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


__all__ = ["is_loopback", "raw_link"]
