"""The acceptance probe against real processes."""

from __future__ import annotations

from flows.loopback import LoopbackFleet
from flows.probing import kakeya_verify, traffic, wrong
from kakeya_ops.demo.fleet import LOOPBACK
from ports import choose_ports


def test_it_passes_while_others_are_served(pair: LoopbackFleet) -> None:
    with traffic(pair) as answered:
        before = answered()
        code, document, _ = kakeya_verify(pair.write_inventory("head"))
        assert answered() > before
    assert (code, wrong(document)) == (0, {})
    assert document is not None
    assert (document["passed"], document["worker"]) == (True, "worker")
    assert len(document["checks"]) > 10


def test_without_a_head_it_cannot_be_carried_out(pair: LoopbackFleet) -> None:
    nobody = f"http://{LOOPBACK}:{choose_ports(1)[0]}"
    code, document, said = kakeya_verify(pair.write_inventory("head"), "--url", nobody)
    assert code == 3
    assert document is not None
    assert (document["error"]["kind"], document["error"]["exit_code"]) == ("PeerUnreachable", 3)
    assert "cannot be reached" in said
    assert "Traceback" not in said
