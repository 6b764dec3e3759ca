"""Evidence as an audit writes it down."""

from __future__ import annotations

from kakeya_ops.serving.quarantine import Evidence

EVIDENCE = Evidence(
    request_id="r1",
    kind="remote_compute",
    epoch=7,
    instance="ab" * 16,
    block=2,
    part=1,
    block_tokens=64,
    matching_parts=5,
    our_checksum="11" * 16,
    their_checksum="22" * 16,
)

__all__ = ["EVIDENCE"]
