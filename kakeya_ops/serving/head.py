"""The head: decides where a prompt's prefix comes from, brings it together, and decodes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from kakeya_ops.engine.contract import BlockSink, FailedEvent, PrefillEvent, Ticket
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.errors import EngineBusy, EngineDead, RemoteRequired
from kakeya_ops.kv.hashing import tenant_key
from kakeya_ops.kv.pool import StoredPart
from kakeya_ops.serving.answer import Answer
from kakeya_ops.serving.audit import Auditor, AuditRules
from kakeya_ops.serving.audit_case import Imported
from kakeya_ops.serving.backlog import Chain
from kakeya_ops.serving.contract import GenerateRequest, OnHeadEvent
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.gather import Gathered, Gathering
from kakeya_ops.serving.grace import Grace
from kakeya_ops.serving.ledger import Ledger, Settled
from kakeya_ops.serving.neighbours import (
    DEMANDED_LOOKUP_SECONDS,
    LOOKUP_SECONDS,
    Inquiry,
    Neighbourhood,
    Survey,
    survey,
)
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.patience import Patience, Terms
from kakeya_ops.serving.prompts import Naming, Prompt
from kakeya_ops.serving.quarantine import Quarantine
from kakeya_ops.serving.receipts import Receipt
from kakeya_ops.serving.scheduler import (
    DEFAULT_CONTEXT_TOKENS,
    Decision,
    Demand,
    Local,
    Policy,
    Rules,
    choose,
    local_seconds,
)
from kakeya_ops.serving.supply import BlocksGone, Errand, explain_fallback
from kakeya_ops.serving.underway import Lead, Underway
from kakeya_ops.wire.signing import new_nonce

_CONTEXT_TOKENS = DEFAULT_CONTEXT_TOKENS
"""Of a model that does not say how much it takes, where the inventory does not say either."""


@dataclass(frozen=True)
class HeadSettings:
    """The inventory's `prefill` section, and what the memory verdict reckons with.

    `concurrency` requests are served at once, `queue` more may wait; `context_tokens` bounds prompt and answer
    together, besides the model itself. A prefill goes on for `grace_seconds` after its client has left. `audit` is the
    share of imports that are computed again at idle moments.
    """

    model_id: str
    context_tokens: int | None = None
    policy: Policy = "measured"
    min_tokens: int = 128
    require_remote: bool = False
    concurrency: int = 64
    queue: int = 0
    grace_seconds: float = 0.0
    audit: float = 0.0


class HeadService:
    """`kakeya_ops.serving.contract.Head`, over one engine and the fleet around it."""

    publish: Callable[[Chain], None]
    """Told of each prefix that is in the own pool; must return at once."""
    follow_up: Callable[[Prompt], None]
    """Told of each prompt with its answer, as a next turn would begin; must return at once."""

    def __init__(
        self,
        node: Node,
        engine: Engine,
        neighbourhood: Neighbourhood,
        settings: HeadSettings,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.publish = lambda chain: None
        self.follow_up = lambda prompt: None
        self.model_id = settings.model_id
        self.text = engine.text
        bounds = [bound for bound in (engine.context_tokens, settings.context_tokens) if bound]
        self.context_tokens = min(bounds, default=_CONTEXT_TOKENS)
        self.vocabulary_size = engine.vocabulary_size
        self.identity = engine.identity
        self.runtime = engine.runtime
        self.cache = engine.settings
        self.node = node
        self.settings = settings
        self.ledger = Ledger(node, engine)
        self.quarantine = quarantine or Quarantine()
        node.read_quarantine = lambda: self.quarantine.names
        self.auditor = Auditor(engine, node.pool, self.quarantine, node.counters, AuditRules(settings.audit))
        self._engine = engine
        self._neighbourhood = neighbourhood
        abandoned = partial(node.counters.add, CounterName.TOKENS_ABANDONED)
        self._underway = Underway(abandoned, Grace(settings.grace_seconds))
        self._places = threading.BoundedSemaphore(settings.concurrency + settings.queue)
        self._requests = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="request")
        self._lookups = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="lookup")

    def submit(self, request: GenerateRequest, on_event: OnHeadEvent) -> Ticket:
        """See `Head.submit`."""
        if not self.healthy():
            raise EngineDead("the engine does not answer")
        self._engine.check_admission()
        if not self._places.acquire(blocking=False):
            raise EngineBusy(max(self._engine.queue_seconds(), 1.0))
        self.auditor.arrive()
        answer = Answer(request, on_event, self._leave)
        self._requests.submit(self._serve, answer)
        return answer

    def _leave(self) -> None:
        self._places.release()
        self.auditor.leave()

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """This head's own prefill speed, None before it was measured."""
        return self._engine.measured.tokens_per_second

    def idle(self) -> Local:
        """This head as the scheduler would see it with nothing at hand and nothing to do."""
        measured = self._engine.measured
        return Local(0, measured.tokens_per_second, 0.0, 0, measured.curve)

    @property
    def rules(self) -> Rules:
        """The inventory's rules, without any directive."""
        return self._rules(frozenset())

    def healthy(self) -> bool:
        """See `Head.healthy`."""
        return self.node.health().healthy

    def close(self) -> None:
        """Take no more requests. Those under way end with the engine."""
        self._requests.shutdown(wait=False, cancel_futures=True)
        self._lookups.shutdown(wait=False, cancel_futures=True)

    def _serve(self, answer: Answer) -> None:
        """Everything up to the engine, on a thread of its own. Whatever goes wrong ends this answer alone."""
        if not answer.begin():
            return
        try:
            answer.seconds["queued"] = answer.elapsed()
            self._start(answer)
        except Exception as error:  # noqa: BLE001 - the edge of a thread: whoever waits is told
            answer.fail(error)
        # Its place among those that are served at once is free only now.
        answer.wait()
        if answer.tokens and answer.request.directive is None:
            self.follow_up(self._name(answer.request, tuple(answer.tokens)))

    def _start(self, answer: Answer) -> None:
        prompt = self._name(answer.request)
        modes = answer.request.directive.modes if answer.request.directive else frozenset()
        gathering = Gathering(self._engine, self.node.pool, prompt, use_pool=not modes & {"local", "skip-local-pool"})
        lead = None if modes else self._share(answer, prompt, gathering)
        rules = self._rules(modes)
        local = self._local(gathering.local_blocks)
        found = self._survey(answer, prompt, local, rules)
        decision = choose(prompt.layout, len(prompt.tokens), local, found.candidates, rules)
        patience = Patience(self._terms(prompt, local, decision, rules), answer.stop)
        gathered = self._gather(answer, gathering, decision, found, patience)
        if rules.demand != "local":
            self._insist(prompt, decision, gathered)
        if prompt.tenant != self.quarantine.space(answer.request.tenant):
            self._start_anew(answer, lead)
            return
        if lead:
            lead.resumed_tokens = gathered.blocks * prompt.layout.block_tokens
        answer.seconds |= gathered.seconds | {"gathered": answer.elapsed()}
        answer.expect(lambda seconds: self._settle(Settled(answer, prompt, decision, gathered, seconds)))
        answer.follow(
            self._engine.decode(
                answer.request.decode, answer.emit, prefix=gathered.assembly, on_block=self._keep(prompt)
            )
        )

    def _start_anew(self, answer: Answer, lead: Lead | None) -> None:
        """A node was found to be wrong meanwhile, perhaps the one that this came from."""
        if lead:
            lead.hear(FailedEvent(Cancelled()))
        self._start(answer)

    def _share(self, answer: Answer, prompt: Prompt, gathering: Gathering) -> Lead | None:
        """Wait for the prefill of an equal request, or let equal ones wait for this."""
        waited = False
        while gathering.local_blocks < prompt.blocks:
            lead, mine = self._underway.enter((prompt.hashes[prompt.blocks - 1], prompt.tenant))
            if mine:
                answer.share(lead)
                return lead
            if not waited:
                waited = True
                self.node.counters.add(CounterName.REQUESTS_JOINED)
            lead.wait(lambda: answer.stop.stopped, answer.emit)
            if answer.stop.stopped:
                raise Cancelled
            answer.seconds["queued"] = answer.elapsed()
        return None

    def _name(self, request: GenerateRequest, answer: tuple[int, ...] = ()) -> Prompt:
        tenant = self.quarantine.space(request.tenant)
        key = tenant_key(self.node.fleet_key, tenant)
        naming = Naming(self._engine.layout, self._engine.identity.digest, key)
        return Prompt.hash(request.decode.request_id, tenant, request.decode.tokens + answer, naming)

    def _rules(self, modes: frozenset[str]) -> Rules:
        demand: Demand = "local" if "local" in modes else "remote" if "remote" in modes else "none"
        return Rules(self.settings.policy, self.settings.min_tokens, demand)

    def _local(self, resume_blocks: int) -> Local:
        engine = self._engine
        return Local(
            resume_blocks=resume_blocks,
            tokens_per_second=engine.measured.tokens_per_second,
            queue_seconds=engine.queue_seconds(),
            decoding=engine.decoding,
            curve=engine.measured.curve,
        )

    def _survey(self, answer: Answer, prompt: Prompt, local: Local, rules: Rules) -> Survey:
        """Ask the peers, unless the answer could not change the decision."""
        found = Survey()
        if not choose(prompt.layout, len(prompt.tokens), local, (), rules).settled:
            patient = self.settings.require_remote or rules.demand == "remote"
            limit_seconds = DEMANDED_LOOKUP_SECONDS if patient else LOOKUP_SECONDS
            directive = answer.request.directive
            inquiry = Inquiry(prompt, answer.stop, limit_seconds, directive.node if directive else None)
            found = survey(self._neighbourhood, inquiry, self._lookups)
        answer.seconds["lookup"] = found.seconds
        return found

    def _terms(self, prompt: Prompt, local: Local, decision: Decision, rules: Rules) -> Terms | None:
        """What is expected of the peer; None where there is nothing to do but wait for it."""
        if decision.node is None or rules.demand == "remote" or self.settings.require_remote:
            return None

        def alone_seconds(more_blocks: int) -> float:
            now = self._local(local.resume_blocks + more_blocks)
            return local_seconds(prompt.layout, len(prompt.tokens), now)

        more_blocks = decision.blocks - local.resume_blocks
        return Terms(decision.own_prediction, more_blocks, alone_seconds, rules.policy == "prefer_remote")

    def _gather(
        self, answer: Answer, gathering: Gathering, decision: Decision, found: Survey, patience: Patience
    ) -> Gathered:
        if answer.stop.stopped:
            raise Cancelled
        if decision.node is None:
            gathered = gathering.from_pool()
            # Had it answered, it might have been chosen.
            gathered.fallback = explain_fallback(found.faults[0]) if found.faults else None
        else:
            errand = self._errand(answer, decision, patience)
            with self._neighbourhood.engaged(decision.node, decision.own_prediction), patience.watching():
                others = found.offers(decision, gathering.local_blocks)
                gathered = gathering.from_peer(decision, found.sources[decision.node], errand, others)
            self._learn(decision.node, gathered)
            self._audit(decision, gathering.prompt, gathered)
        self.ledger.record_transfer(decision, gathered)
        return gathered

    def _errand(self, answer: Answer, decision: Decision, patience: Patience) -> Errand:
        if decision.kind == "remote_compute":
            self.node.counters.add(CounterName.REMOTE_JOBS, worker=decision.node or "")
        directive, decode = answer.request.directive, answer.request.decode

        def tell(blocks: int) -> None:
            done = blocks * self._engine.layout.block_tokens
            answer.emit(PrefillEvent(done, len(decode.tokens) - 1, decision.node))

        nonce = directive.nonce if directive else new_nonce()
        return Errand(nonce, patience.stop, tell, patience.queued, lambda: patience.gave_up, patience.arrived)

    def _learn(self, node: str, gathered: Gathered) -> None:
        """Let the next decision know how it went."""
        remote, fallback = gathered.remote, gathered.fallback
        if gathered.sources:
            self._learn_of_each(gathered)
            return
        if remote is None:
            if fallback and fallback.reason != BlocksGone.reason:  # to have forgotten is no failure
                self._neighbourhood.failed(node, fallback.reason)
            return
        self._neighbourhood.succeeded(node)
        self._neighbourhood.transferred(remote)

    def _learn_of_each(self, gathered: Gathered) -> None:
        for share in gathered.sources:
            if share.fault:
                if share.fault != BlocksGone.reason:
                    self._neighbourhood.failed(share.node, share.fault)
            elif share.epoch is not None:
                self._neighbourhood.succeeded(share.node)
                if gathered.remote:
                    self._neighbourhood.transferred(share.alone(gathered.remote))

    def _audit(self, decision: Decision, prompt: Prompt, gathered: Gathered) -> None:
        """Have what came audited, also where the rest of it did not."""
        for node, checksums in gathered.checksums.items():
            if checksums:
                epoch, instance = self._process_of(node, gathered)
                self.auditor.consider(Imported(node, epoch, instance, decision.kind, prompt, checksums))

    def _process_of(self, node: str, gathered: Gathered) -> tuple[int, str]:
        """Epoch and instance of who brought it: by its own stream's word, or else by its card."""
        told = (*gathered.sources, *((gathered.remote,) if gathered.remote else ()))
        known = next((one for one in told if one.node == node and one.instance), None) or self.node.cards.card(node)
        return (known.epoch or 0, known.instance or "") if known else (0, "")

    def _insist(self, prompt: Prompt, decision: Decision, gathered: Gathered) -> None:
        """Refuse a local prefill where the inventory demands a remote one."""
        missing = (prompt.blocks - gathered.blocks) * prompt.layout.block_tokens
        if self.settings.require_remote and missing >= self.settings.min_tokens:
            raise RemoteRequired(gathered.fallback.message if gathered.fallback else decision.reason)

    def _settle(self, settled: Settled) -> Receipt:
        prompt = settled.prompt
        # Blocks come one by one, so that the first would be the first to go; but without it the others are of no use.
        self.node.pool.touch_prefix(prompt.key(*pair) for pair in prompt.layout.needed(prompt.blocks))
        if _leaves_traces(settled.answer.request):
            # What it found here was used before: it stays longer than what nobody has asked for twice.
            found = prompt.layout.needed(settled.gathered.local_blocks)
            self.node.pool.promote(prompt.key(*pair) for pair in found)
            self.publish(Chain(prompt, prompt.blocks))
        return self.ledger.settle(settled)

    def _keep(self, prompt: Prompt) -> BlockSink:
        def keep(block: int, parts: tuple[StoredPart | None, ...]) -> None:
            for part, stored in enumerate(parts):
                if stored is not None:
                    self.node.pool.put(prompt.key(block, part), stored)

        return keep


def _leaves_traces(request: GenerateRequest) -> bool:
    """False for who is to be served as if there were nobody else."""
    return request.directive is None or "local" not in request.directive.modes


__all__ = ["HeadService", "HeadSettings"]
