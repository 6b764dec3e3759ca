from __future__ import annotations

from dataclasses import replace

from front.test_network import ABSENT, KNOWN
from kakeya_ops.front.head_metrics import HeadCollector


def test_peers_are_told_as_far_as_they_are_known() -> None:
    nowhere = replace(ABSENT, node="nowhere", link=None)
    families = {
        one.name: one for one in HeadCollector(lambda: [KNOWN, ABSENT, nowhere], lambda: 3, lambda: 2).collect()
    }
    values = {name: {s.labels.get("peer"): s.value for s in family.samples} for name, family in families.items()}
    assert values == {
        "kakeya_requests_live": {None: 3},
        "kakeya_listeners": {None: 2},
        "kakeya_peer_up": {"store": 1, "worker": 0, "nowhere": 0},
        "kakeya_peer_usable": {"store": 1, "worker": 0, "nowhere": 0},
        "kakeya_peer_rtt_seconds": {"store": 0.001, "worker": 0.001},
        "kakeya_peer_bytes_per_second": {"store": 1e9, "worker": 1e9},
    }
