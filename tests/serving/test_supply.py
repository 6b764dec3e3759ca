"""Why a peer's blocks did not come, in words that may become labels of counters."""

from __future__ import annotations

from kakeya_ops.errors import PeerRefused, PeerTimeout
from kakeya_ops.serving.receipts import Fallback
from kakeya_ops.serving.supply import BlocksGone, explain_fallback


def test_only_known_words_become_labels() -> None:
    assert explain_fallback(PeerRefused("peer", 500, "x" * 200, "m")).reason == "refused"
    assert explain_fallback(PeerRefused("peer", 507, "pool_full", "m")).reason == "pool_full"


def test_a_fallback_names_the_peer_the_fault_and_what_was_kept() -> None:
    error = PeerTimeout("peer", "silent")
    assert explain_fallback(error, 3) == Fallback("peer", "timeout", error.message, 3)
    assert explain_fallback(BlocksGone("peer")).reason == "gone"
