"""Audits on a real engine: what is chosen, when it is done, when it gives way, and what becomes of whom it finds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from engine_bench import BLOCK_TOKENS, SETTINGS, prompt
from engine_requests import Gate, ask
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import PrefillJob
from kakeya_ops.kv.hashing import content_checksum
from kakeya_ops.kv.pool import BlockPool, StoredPart
from kakeya_ops.serving.audit import MOST_WAITING, Auditor, AuditRules, auditing
from kakeya_ops.serving.audit_case import Imported
from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.quarantine import Quarantine
from listeners import DEADLINE_SECONDS, Blocks
from serving.running import hash_prompt
from tiny_models import FAMILIES

BLOCKS = 5
_seeds = count(1)


@pytest.fixture(scope="module")
def engine(tiny_llama) -> Iterator[Engine]:  # type: ignore[no-untyped-def]
    engine = Engine.load(tiny_llama, SETTINGS)
    yield engine
    engine.close()


@dataclass
class Desk:
    """An auditor with a pool of its own, whose lots are `draws`; below a half is chosen."""

    engine: Engine
    pool: BlockPool = field(default_factory=lambda: BlockPool(2**24))
    quarantine: Quarantine = field(default_factory=Quarantine)
    counters: Counters = field(default_factory=Counters)
    draws: list[float] = field(default_factory=list)
    share: float = 0.5

    def __post_init__(self) -> None:
        rules = AuditRules(self.share, 0.0, lambda: self.draws.pop(0))
        self.auditor = Auditor(self.engine, self.pool, self.quarantine, self.counters, rules)

    def bring(self, node: str = "worker", instance: str = "a" * 32) -> Imported:
        """An honest import, as a worker computes and a head keeps it."""
        tokens, kept = prompt(BLOCKS * BLOCK_TOKENS + 3, seed=next(_seeds)), Blocks()
        self.engine.prefill(PrefillJob(tokens, BLOCKS, kept.keep, kept.done))
        assert kept.wait() is None
        whole = hash_prompt(self.engine.identity, tokens)
        checksums = {}
        for block, part in whole.layout.needed(BLOCKS):
            stored = kept.parts[block][part]
            assert stored is not None
            self.pool.put(whole.key(block, part), stored)
            checksums[block, part] = stored.checksum
        return Imported(node, 1, instance, "remote_compute", whole, checksums)

    def audit(self, *imports: Imported) -> None:
        """Audit `imports` to the end."""
        for imported in imports:
            self.auditor.consider(imported)
        with auditing(self.auditor):
            self.wait()

    def wait(self) -> None:
        with self.auditor._changed:
            assert self.auditor._changed.wait_for(lambda: not self.auditor._waiting, DEADLINE_SECONDS)

    def counted(self, name: CounterName, node: str = "worker") -> float:
        return self.counters.value(name, worker=node)


@pytest.fixture
def desk(engine: Engine) -> Desk:
    return Desk(engine)


def wrong(imported: Imported, block: int = 3) -> Imported:
    """The same, of which one payload came otherwise."""
    return replace(imported, checksums={**imported.checksums, (block, 0): content_checksum(b"something else")})


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_oss", "qwen3_next", "mamba2", "deepseek_v3"])
def test_a_healthy_node_of_any_family_is_never_held(tiny_family, family: str) -> None:  # type: ignore[no-untyped-def]
    assert family in FAMILIES
    engine = Engine.load(tiny_family(family), SETTINGS)
    try:
        desk = Desk(engine, draws=[0.0] * 3)
        desk.audit(*(desk.bring() for _ in range(4)))
        assert desk.counted(CounterName.AUDITS) == 4
        assert desk.counted(CounterName.AUDIT_FAILURES) == 0
        assert desk.quarantine.state.held == ()
    finally:
        engine.close()


def test_a_node_whose_kv_differs_is_held_and_nothing_of_before_is_used(desk: Desk) -> None:
    imported = desk.bring()
    desk.audit(wrong(imported))
    held = desk.quarantine.holds("worker")
    assert held is not None
    assert (held.evidence.block, held.evidence.matching_parts) == (3, 3)
    assert held.evidence.instance == "a" * 32
    assert held.evidence.request_id == "request"
    assert (desk.pool.stats().entries, desk.quarantine.space("t") != "t") == (0, True)
    assert desk.counted(CounterName.AUDITS) == desk.counted(CounterName.AUDIT_FAILURES) == 1


def test_the_evidence_tells_how_far_it_is_off(desk: Desk) -> None:
    imported = desk.bring()
    key = imported.prompt.key(1, 0)
    other = StoredPart.of(bytes(desk.engine.layout.parts[0].nbytes))
    desk.pool.clear()
    desk.pool.put(key, other)
    desk.audit(replace(imported, checksums={(1, 0): other.checksum}))
    held = desk.quarantine.holds("worker")
    assert held is not None
    assert held.evidence.max_deviation is not None
    assert held.evidence.max_deviation > 0.5


def test_the_first_of_each_process_is_always_audited(desk: Desk) -> None:
    desk.draws = [0.9, 0.9]
    first, again = desk.bring(), desk.bring()
    desk.audit(first)
    desk.auditor.consider(again)
    assert desk.auditor.settled()
    desk.auditor.consider(desk.bring("other"))
    desk.auditor.consider(desk.bring(instance="b" * 32))
    desk.auditor.consider(desk.bring(instance="b" * 32))  # while the first still waits, it is one among others
    assert [case.imported.instance for case in desk.auditor._waiting] == ["b" * 32, "a" * 32]
    assert desk.draws == []


def test_others_are_sampled_and_come_after_the_first(desk: Desk) -> None:
    desk.draws = [0.4, 0.6, 0.4]
    for _ in range(4):
        desk.auditor.consider(desk.bring())
    desk.auditor.consider(desk.bring("other"))
    assert [(case.first, case.imported.node) for case in desk.auditor._waiting] == [
        (True, "other"),
        (True, "worker"),
        (False, "worker"),
        (False, "worker"),
    ]


def test_a_share_of_nothing_audits_nothing(engine: Engine) -> None:
    desk = Desk(engine, share=0.0)
    desk.auditor.consider(desk.bring())
    assert desk.auditor.settled()


def test_what_waits_is_bounded_and_the_sampled_go_first(desk: Desk) -> None:
    desk.draws = [0.0] * (MOST_WAITING + 2)
    imported = desk.bring()
    for _ in range(MOST_WAITING + 2):
        desk.auditor.consider(imported)
    assert len(desk.auditor._waiting) == MOST_WAITING
    assert desk.auditor._waiting[0].first
    assert desk.counted(CounterName.AUDITS_DROPPED) == 2


def test_a_process_that_started_anew_has_one_first_import_too(desk: Desk) -> None:
    desk.draws = [0.9] * MOST_WAITING
    firsts = [desk.bring("other"), desk.bring(instance="a" * 32), desk.bring(instance="b" * 32)]
    for imported in (*firsts, *[firsts[-1]] * MOST_WAITING):
        desk.auditor.consider(imported)
    assert [case.imported for case in desk.auditor._waiting] == firsts[::-1]


def test_one_that_is_held_is_not_audited_again(desk: Desk) -> None:
    imported = desk.bring()
    desk.draws = [0.0]
    desk.audit(wrong(imported), imported)
    assert desk.counted(CounterName.AUDITS) == 1


def test_after_a_release_its_first_is_audited_again(desk: Desk) -> None:
    desk.draws = [0.9]
    first, later = desk.bring(), desk.bring()
    desk.audit(first)
    desk.auditor.consider(later)  # not chosen
    assert desk.auditor.settled()
    failing = Desk(desk.engine, quarantine=desk.quarantine)
    failing.audit(wrong(failing.bring()))
    failing.quarantine.release("worker", "because")
    failing.auditor.consider(later)
    assert [case.first for case in failing.auditor._waiting] == [True]


def test_nothing_is_audited_while_a_request_is_under_way(desk: Desk) -> None:
    desk.auditor.consider(desk.bring())
    desk.auditor.arrive()
    with auditing(desk.auditor):
        assert len(ask(desk.engine, prompt(BLOCK_TOKENS, seed=99)).wait_for_end()) == 6
        assert desk.counted(CounterName.AUDITS) == 0
        desk.auditor.leave()
        desk.wait()
    assert desk.counted(CounterName.AUDITS) == 1


def test_it_gives_way_at_the_next_block_and_is_taken_up_there(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request comes while the second block is being computed."""
    jobs: list[PrefillJob] = []
    reached = threading.Event()
    prefill = desk.engine.prefill

    def watched(job: PrefillJob):  # type: ignore[no-untyped-def]
        jobs.append(job)
        look = job.on_block

        def on_block(block: int, parts: tuple[StoredPart | None, ...]) -> None:
            look(block, parts)
            if block == 1 and len(jobs) == 1:
                desk.auditor.arrive()
                reached.set()

        return prefill(replace(job, on_block=on_block))

    imported = desk.bring()
    monkeypatch.setattr(desk.engine, "prefill", watched)
    desk.auditor.consider(imported)
    with auditing(desk.auditor):
        assert reached.wait(DEADLINE_SECONDS)
        ask(desk.engine, prompt(BLOCK_TOKENS, seed=98)).wait_for_end()
        assert (len(jobs), desk.counted(CounterName.AUDITS)) == (1, 0)
        desk.auditor.leave()
        desk.wait()
    assert [job.prefix.blocks if job.prefix else 0 for job in jobs] == [0, 2]
    assert (desk.counted(CounterName.AUDITS), desk.counted(CounterName.AUDIT_FAILURES)) == (1, 0)


def test_the_pool_is_left_as_it_was(desk: Desk) -> None:
    imported = desk.bring()
    before = desk.pool.stats()
    desk.audit(imported)
    assert desk.pool.stats() == before


def test_it_can_be_stopped_in_the_middle(desk: Desk) -> None:
    desk.auditor.consider(desk.bring())
    gate = Gate(desk.engine)
    with auditing(desk.auditor):
        gate.open()
    assert not desk.auditor._thread.is_alive()


def test_an_audit_that_cannot_be_carried_out_is_given_up(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    imported = desk.bring()
    beyond = replace(imported.prompt, tokens=(10**6, *imported.prompt.tokens[1:]))
    desk.audit(replace(imported, prompt=beyond))
    assert "an audit failed" in caplog.text
    assert desk.counted(CounterName.AUDITS) == 0
    assert desk.quarantine.state.held == ()


def test_a_finding_is_logged_with_what_a_program_can_read(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.audit(wrong(desk.bring()))
    [line] = [record for record in caplog.records if record.message == "put into quarantine"]
    assert (line.levelname, line.__dict__["worker"], line.__dict__["block"]) == ("ERROR", "worker", 3)
    assert {"epoch", "request_id", "max_deviation", "tolerance"} <= line.__dict__.keys()
