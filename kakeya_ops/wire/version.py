"""Which wire version a message is of: told by every request and every reply, and looked at before anything else.

Two versions do not talk. To say so by name needs no signature: whoever changes what is told can only have a call
refused, as by cutting the line.
"""

from __future__ import annotations

from collections.abc import Mapping

from kakeya_ops import __version__
from kakeya_ops.errors import ReleaseMismatch
from kakeya_ops.kv.identity import WIRE_VERSION

WIRE_HEADER = "X-Kakeya-Wire"
UNTOLD = "1"
"""What a message without the header is of: the first releases did not tell."""


def wire_headers() -> dict[str, str]:
    """What each message of this release says."""
    return {WIRE_HEADER: str(WIRE_VERSION)}


def check_wire(peer: str, headers: Mapping[str, str]) -> None:
    """Raise `ReleaseMismatch` if the message of `peer` with `headers` is of another version."""
    said = next((value for name, value in headers.items() if name.lower() == WIRE_HEADER.lower()), UNTOLD)
    if said != str(WIRE_VERSION):
        raise ReleaseMismatch(
            peer, f"speaks wire version {said[:20]}, and release {__version__} here speaks version {WIRE_VERSION}"
        )


__all__ = ["UNTOLD", "WIRE_HEADER", "check_wire", "wire_headers"]
