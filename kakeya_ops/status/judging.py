"""From what was heard to what is so: pure, and the only place where it is decided whether a node serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.memory.footprint import Footprint
from kakeya_ops.memory.observed import Comparison, Observation, compare
from kakeya_ops.observe.state import Unknown
from kakeya_ops.serving.compatibility import find_difference
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.status.asking import ApiAnswer
from kakeya_ops.status.board import Heard, Look, Told
from kakeya_ops.status.life import PATIENCE_SECONDS, SSH_SECONDS, Life, judge_life
from kakeya_ops.status.reaching import judge_reach
from kakeya_ops.status.remote_asking import HostAnswer
from kakeya_ops.status.totals import add_up
from kakeya_ops.status.value import (
    CardFacts,
    FleetStatus,
    Identity,
    Memory,
    NodeStatus,
    Reach,
    Service,
)
from kakeya_ops.wire.cards import Card

_RESTART_TOLD_SECONDS = 60.0


@dataclass(frozen=True)
class Moment:
    """One moment: monotonic seconds, and Unix time."""

    now: float
    at: float


def judge(
    inventory: Inventory, heard: Mapping[str, Heard], moment: Moment, needs: Mapping[str, Footprint] = {}
) -> FleetStatus:
    """The status at `moment`; `needs` are what nodes are forecast to need in memory, where that is known."""
    fleet = _Fleet(inventory, heard, moment.now, needs)
    nodes = tuple(fleet.node(name) for name in inventory.hosts)
    return FleetStatus(
        fleet=inventory.fleet.name,
        at=moment.at,
        nodes=nodes,
        totals=add_up(nodes, fleet.apis.values()),
        conflicts=tuple(dict.fromkeys(one for api in fleet.apis.values() for one in api.conflicts)),
        notes=_fleet_notes(inventory),
    )


class _Fleet:
    def __init__(
        self, inventory: Inventory, heard: Mapping[str, Heard], now: float, needs: Mapping[str, Footprint]
    ) -> None:
        self.inventory = inventory
        self.needs = needs
        self.heard = heard
        self.now = now
        self.apis = {name: api for name, one in heard.items() if (api := self._api(one)) is not None}
        """What each head that answers says."""
        self.heads = {
            name: one.told.card
            for name, one in heard.items()
            if one.told and one.told.card.role == "head" and not self._stale(one.told)
        }

    def node(self, name: str) -> NodeStatus:
        host, heard = self.inventory.host(name), self.heard[name]
        life = judge_life(heard, self.now)
        identity = self._identity(host, heard)
        reaches = () if host.role == "head" else self._reaches(name)
        problems = [*self._problems(host, heard, life, identity), *self._problems_of_heads(name, life, reaches)]
        doubts = self._doubts(host, life, identity, reaches)
        card = self._card_facts(heard.told) if heard.told else None
        memory = _memory(heard.told.card, self.needs.get(name)) if heard.told else Memory()
        return NodeStatus(
            node=name,
            role=host.role,
            state=life.state,
            serves=False if problems else None if doubts else True,
            problems=tuple(dict.fromkeys(problems or doubts)),
            notes=(*self._notes(host, heard, life, reaches), *_memory_notes(memory)),
            service=_service(heard.ssh, self.now),
            model=self._model(host, identity),
            identity=identity,
            reaches=reaches,
            card=card,
            memory=memory,
            prefill_now_tokens_per_second=heard.rates[-1] if heard.rates and life.state == "healthy" else None,
            prefill_history=heard.rates,
            restarts_seen=heard.restarts,
        )

    def _api(self, heard: Heard) -> ApiAnswer | None:
        """What the head's API says now: from here, or else on the spot."""
        direct = heard.api.current(self.now, PATIENCE_SECONDS) if heard.api else None
        host = heard.ssh.current(self.now, SSH_SECONDS) if heard.ssh else None
        return direct or (host.api if host else None)

    def _api_fault(self, heard: Heard) -> str:
        """Why a head's API says nothing, as far as it was asked."""
        if heard.api is None and heard.ssh is None:
            return "its API is on its host's loopback, where it is asked over SSH only"
        direct = heard.api.fault(self.now, PATIENCE_SECONDS) if heard.api else None
        host = heard.ssh.current(self.now, SSH_SECONDS) if heard.ssh else None
        return "; ".join(dict.fromkeys(fault for fault in (direct, host and host.api_fault) if fault))

    def _identity(self, host: ResolvedHost, heard: Heard) -> Identity:
        card = heard.told.card if heard.told else None
        if card is None or card.identity is None:
            return Identity()
        if host.role == "head":
            return Identity(card.identity)
        matches = [_match(card, head_name, head) for head_name, head in self.heads.items()]
        equal = next((match for match in matches if match.equal), None)
        return equal or (matches[0] if matches else Identity(card.identity))

    def _reaches(self, name: str) -> tuple[Reach, ...]:
        return tuple(judge_reach(head, api, name, self.heard) for head, api in self.apis.items())

    def _problems(self, host: ResolvedHost, heard: Heard, life: Life, identity: Identity) -> list[str]:
        problems = []
        if life.state in ("failing", "unreachable"):
            problems.append(f"{life.state}: {life.reason}" if life.reason else life.state)
        told = heard.told
        if told and told.card.role != host.role:
            problems.append(f"runs as a {told.card.role}, and the inventory says {host.role}")
        if heard.peer.error is None and heard.peer.value and heard.peer.value.fault:
            problems.append(f"its card cannot be had: {heard.peer.value.fault}")
        if identity.equal is False:
            problems.append(_explain(identity))
        return problems

    def _problems_of_heads(self, name: str, life: Life, reaches: tuple[Reach, ...]) -> list[str]:
        """What keeps heads from asking a node that is alive."""
        if life.state != "healthy":
            return []
        problems = []
        for reach in reaches:
            known = self.apis[reach.head].nodes.get(name) or {}
            if held := known.get("quarantine"):
                said = held.get("reason") if isinstance(held, Mapping) else held
                problems.append(f"{reach.head} has it in quarantine: {said}; see kakeya quarantine list")
            elif not reach.to_node:
                way = ", though it reaches the head" if reach.to_head else ""
                problems.append(f"{reach.head} does not reach it{way}: {reach.error or 'not tried yet'}")
            elif known.get("conflict"):
                problems.append(f"{reach.head} does not ask it: another running node has its id")
            elif known.get("identity_match") and known.get("healthy") and known.get("usable") is False:
                problems.append(f"{reach.head} does not ask it for a while after it failed")
        return problems

    def _doubts(self, host: ResolvedHost, life: Life, identity: Identity, reaches: tuple[Reach, ...]) -> list[str]:
        """Why it is not known whether a node with which nothing is wrong does what it is there for."""
        if life.state == "asking":
            return ["no answer yet"]
        if host.role == "head":
            return []
        unknown = ["its cache identity cannot be compared"] if identity.equal is None else []
        unknown += [] if reaches else ["no API says whether it is reached"]
        heads = " or ".join(name for name, other in self.inventory.hosts.items() if other.role == "head")
        return [f"not known whether {heads} can use it: {', and '.join(unknown)}"] if unknown else []

    def _notes(self, host: ResolvedHost, heard: Heard, life: Life, reaches: tuple[Reach, ...]) -> list[str]:
        notes = [life.note] if life.note else []
        if heard.restarted_at is not None and self.now - heard.restarted_at < _RESTART_TOLD_SECONDS:
            ago = self.now - heard.restarted_at
            notes.append(f"restarted, seen {ago:.0f} s ago: its counters begin anew")
        if heard.told and self._stale(heard.told):
            notes.append(f"the last card is {self.now - heard.told.at:.0f} s old: its figures are of then")
        if host.role == "head" and host.name not in self.apis and (silence := self._api_fault(heard)):
            notes.append(f"no links and no reasons of fallbacks from it: {silence}")
        if heard.ssh is not None and (fault := heard.ssh.fault(self.now, SSH_SECONDS)) is not None:
            notes.append(f"not reached over SSH: {fault}")
        notes += [_describe_one_way(reach) for reach in reaches if reach.one_way]
        return notes

    def _card_facts(self, told: Told) -> CardFacts:
        card = told.card
        return CardFacts(
            epoch=card.epoch,
            instance=card.instance,
            version=card.version,
            uptime_seconds=max(card.issued_at - card.epoch / 1e9, 0.0),
            age_seconds=max(self.now - told.at, 0.0),
            stale=self._stale(told),
            told_by=told.by,
            queued=card.load.queued,
            running=card.load.running,
            jobs_done=_jobs_done(card),
            prefill_tokens_per_second=card.prefill_tokens_per_second,
            pool_used_bytes=card.pool.used_bytes,
            pool_budget_bytes=card.pool.budget_bytes,
            free_memory_bytes=card.free_memory_bytes,
            counters=dict(card.counters),
        )

    def _stale(self, told: Told) -> bool:
        return self.now - told.at > told.card.ttl_seconds

    def _model(self, host: ResolvedHost, identity: Identity) -> str | None:
        """The inventory's model, of a node of which it is known that this is what it has."""
        if host.role == "head":
            api = self.apis.get(host.name)
            return str(api.head.get("model")) if api else (self.inventory.model.id if identity.digest else None)
        return self.inventory.model.id if host.role == "worker" and identity.equal else None


def _match(card: Card, head_name: str, head: Card) -> Identity:
    try:
        identity = CacheIdentity.from_json(head.identity_document or {})
        difference = find_difference(card, identity, Runtime.from_json(head.runtime or {}))
    except (KeyError, TypeError, ValueError):
        return Identity(card.identity, head_name)
    return Identity(card.identity, head_name, difference is None, difference.to_json() if difference else None)


def _explain(identity: Identity) -> str:
    found = identity.difference or {}
    return f"cannot help {identity.head}: {found.get('field')} is {found.get('theirs')} here, {found.get('ours')} there"


def _describe_one_way(reach: Reach) -> str:
    if reach.to_node:
        return f"one way only: {reach.head} reaches it, not the other way"
    return f"one way only: it reaches {reach.head}, not the other way"


def _service(look: Look[HostAnswer] | None, now: float) -> Service:
    if look is None:
        return Service("not asked", reason="no SSH")
    fault = look.fault(now, SSH_SECONDS)
    if fault is not None:
        return Service("not reached", reason=fault)
    if look.value is None:
        return Service("asking")
    state = look.value.state
    if isinstance(state.jobs, Unknown):
        return Service("unknown", reason=state.jobs.reason)
    if state.job is None:
        return Service("no service", reason="launchd has none loaded")
    service = state.job.service
    return Service(service.state or "loaded", service.pid, None if service.running else _last_end(service))


def _last_end(service: Any) -> str | None:
    return f"last exit {service.last_exit}" if service.last_exit else None


def _jobs_done(card: Card) -> int | None:
    """The prefills that a worker finished for heads, or the requests that a head has answered."""
    name = {"worker": CounterName.JOBS_FINISHED, "head": CounterName.REQUESTS}.get(card.role)
    count = card.counters.get(name.value) if name else None
    return None if count is None else int(count)


def _memory(card: Card, need: Footprint | None) -> Memory:
    if card.memory is None:
        return Memory()
    seen = Observation(footprint_bytes=card.memory.footprint_bytes, pool_used_bytes=card.pool.used_bytes)
    forecast = next((one.forecast_bytes for one in compare(need, seen)), None) if need else None
    return Memory(card.memory.footprint_bytes, card.memory.peak_bytes, forecast)


def _memory_notes(memory: Memory) -> Iterator[str]:
    """More than was forecast is worth knowing; less is what a node takes that was never full."""
    if memory.footprint_bytes is not None and memory.forecast_bytes is not None:
        compared = Comparison("its memory", memory.forecast_bytes, memory.footprint_bytes)
        if compared.warning is not None and compared.off_percent < 0:
            yield compared.warning


def _fleet_notes(inventory: Inventory) -> tuple[str, ...]:
    cache = inventory.cache
    if cache.window is None:
        return ()
    return (f"of longer prompts the first {cache.sink} and the last {cache.window} tokens are kept, others forgotten",)


__all__ = ["Moment", "judge"]
