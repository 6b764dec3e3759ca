"""From what was heard to what is so: pure, and the only place where it is decided whether a node serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.observe.state import Health, Unknown
from kakeya_ops.serving.compatibility import find_difference
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.status.asking import ApiAnswer
from kakeya_ops.status.board import Heard, Look, Told
from kakeya_ops.status.value import (
    TOTALS,
    CardFacts,
    FleetStatus,
    Identity,
    Memory,
    NodeStatus,
    Number,
    Reach,
    Service,
    State,
    Totals,
)
from kakeya_ops.wire.cards import Card

LIVELY_SECONDS = 6.0
"""A node shows its card to the others every two seconds: one that is passed on and no older than this is alive."""
PATIENCE_SECONDS = 8.0
"""A node that has not answered for so long does not answer."""
SSH_SECONDS = 90.0
"""What was heard over SSH counts for so long."""
_RESTART_TOLD_SECONDS = 60.0


def judge(inventory: Inventory, heard: Mapping[str, Heard], now: float, at: float) -> FleetStatus:
    """The status at `now`, in monotonic seconds, which is the Unix time `at`."""
    fleet = _Fleet(inventory, heard, now)
    nodes = tuple(fleet.node(name) for name in inventory.hosts)
    return FleetStatus(
        fleet=inventory.fleet.name,
        at=at,
        nodes=nodes,
        totals=_totals(nodes, fleet.apis),
        conflicts=tuple(dict.fromkeys(one for api in fleet.apis.values() for one in api.conflicts)),
        notes=_fleet_notes(inventory),
    )


@dataclass(frozen=True)
class _Life:
    """Whether a node is alive, and how that is known."""

    state: State
    reason: str | None = None
    note: str | None = None


class _Fleet:
    def __init__(self, inventory: Inventory, heard: Mapping[str, Heard], now: float) -> None:
        self.inventory = inventory
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
        life = self._life(name, heard)
        identity = self._identity(host, heard)
        reaches = self._reaches(name) if host.role != "head" else ()
        problems = [*self._problems(host, heard, life, identity), *self._problems_of_heads(name, life, reaches)]
        card = self._card_facts(heard.told) if heard.told else None
        return NodeStatus(
            node=name,
            role=host.role,
            state=life.state,
            serves=life.state == "healthy" and not problems,
            problems=tuple(dict.fromkeys(problems)),
            notes=tuple(self._notes(heard, life, reaches)),
            service=_service(heard.ssh),
            model=self._model(host, identity),
            identity=identity,
            reaches=reaches,
            card=card,
            memory=_memory(heard.told.card) if heard.told else None,
            prefill_now_tokens_per_second=heard.rates[-1] if heard.rates and card and not card.stale else None,
            prefill_history=heard.rates,
            restarts_seen=heard.restarts,
        )

    def _api(self, heard: Heard) -> ApiAnswer | None:
        """What the head's API says now: from here, or else on the spot."""
        if heard.api is not None and heard.api.error is None and heard.api.value is not None:
            fresh = self.now - (heard.api.value_at or 0) < PATIENCE_SECONDS
            return heard.api.value if fresh else None
        if heard.ssh is not None and heard.ssh.value is not None and heard.ssh.error is None:
            return heard.ssh.value.api
        return None

    def _life(self, name: str, heard: Heard) -> _Life:
        peer = heard.peer
        silent_seconds = peer.overdue_seconds(self.now, PATIENCE_SECONDS)
        error = f"no answer for {silent_seconds:.0f} s" if silent_seconds else peer.error
        if error is None and peer.value is not None:
            return _from_health(peer.value.health)
        if error is None:
            return _Life("asking")
        return self._life_elsewhere(name, heard, error)

    def _life_elsewhere(self, name: str, heard: Heard, error: str) -> _Life:
        """Of a node that does not answer here: what its own host says, then what the heads see of it."""
        not_here = f"not reached from here: {error}"
        if heard.ssh and heard.ssh.value and self.now - (heard.ssh.value_at or 0) < SSH_SECONDS and not heard.ssh.error:
            health = heard.ssh.value.state.health
            if isinstance(health, Health):
                life = _from_health(health)
                return _Life(life.state, life.reason, f"{not_here}; asked on its own host")
            if health is None:
                return _Life("unreachable", f"nothing answers on its own host, and {not_here}")
        if heard.told and heard.told.by and self.now - heard.told.at < LIVELY_SECONDS:
            seen = _Life("healthy" if heard.told.card.healthy else "failing", None if heard.told.card.healthy else "")
            reason = seen.reason and "its card says that it is not healthy"
            return _Life(seen.state, reason, f"{not_here}; {heard.told.by} has its card")
        return _Life("unreachable", error)

    def _identity(self, host: ResolvedHost, heard: Heard) -> Identity:
        card = heard.told.card if heard.told else None
        if card is None:
            return Identity()
        if host.role == "head":
            return Identity(card.identity)
        matches = [_match(card, head_name, head) for head_name, head in self.heads.items()]
        equal = next((match for match in matches if match.equal), None)
        return equal or (matches[0] if matches else Identity(card.identity))

    def _reaches(self, name: str) -> tuple[Reach, ...]:
        return tuple(_reach(head, api, name, self._shows_itself(name, head, api)) for head, api in self.apis.items())

    def _shows_itself(self, name: str, head: str, api: ApiAnswer) -> bool:
        """Whether cards go round between the two although the head does not reach the node."""
        if (api.nodes.get(name) or {}).get("instance") is not None:
            return True
        answer = self.heard[name].peer.value if self.heard[name].peer.error is None else None
        return answer is not None and any(card.node == head for card in answer.known)

    def _problems(self, host: ResolvedHost, heard: Heard, life: _Life, identity: Identity) -> list[str]:
        problems = []
        if life.state in ("failing", "unreachable"):
            problems.append(f"{life.state}: {life.reason}" if life.reason else life.state)
        told = heard.told
        if told and told.card.role != host.role:
            problems.append(f"runs as a {told.card.role}, and the inventory says {host.role}")
        if heard.peer.error is None and heard.peer.value and heard.peer.value.fault:
            problems.append(f"its card cannot be had: {plain_of(host.name, heard.peer.value.fault)}")
        if identity.equal is False:
            problems.append(_explain(identity))
        return problems

    def _problems_of_heads(self, name: str, life: _Life, reaches: tuple[Reach, ...]) -> list[str]:
        """What keeps heads from asking a node that is alive."""
        if life.state != "healthy":
            return []
        problems = []
        for reach in reaches:
            known = self.apis[reach.head].nodes.get(name) or {}
            if not reach.to_node:
                way = ", though it reaches the head" if reach.to_head else ""
                problems.append(f"{reach.head} does not reach it{way}: {reach.error or 'not tried yet'}")
            elif known.get("conflict"):
                problems.append(f"{reach.head} does not ask it: another running node has its id")
            elif known.get("identity_match") and known.get("healthy") and known.get("usable") is False:
                problems.append(f"{reach.head} does not ask it for a while after it failed")
        return problems

    def _notes(self, heard: Heard, life: _Life, reaches: tuple[Reach, ...]) -> list[str]:
        notes = [life.note] if life.note else []
        if heard.restarted_at is not None and self.now - heard.restarted_at < _RESTART_TOLD_SECONDS:
            ago = self.now - heard.restarted_at
            notes.append(f"restarted, seen {ago:.0f} s ago: its counters begin anew")
        if heard.told and self._stale(heard.told):
            notes.append(f"the last card is {self.now - heard.told.at:.0f} s old: its figures are of then")
        if heard.api is not None and heard.api.error is not None and not (heard.ssh and self._api(heard)):
            notes.append(f"no links and no reasons of fallbacks from it: {heard.api.error}")
        if heard.ssh is not None and heard.ssh.error is not None:
            notes.append(f"not reached over SSH: {heard.ssh.error}")
        notes += [f"one way only: it reaches {reach.head}, not the other way" for reach in reaches if reach.one_way]
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


def plain_of(name: str, message: str) -> str:
    """`message` without the node's name in front."""
    return message.removeprefix(f"{name}: ")


def _from_health(health: Health) -> _Life:
    return _Life("healthy") if health.healthy else _Life("failing", health.reason or "it does not say why")


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


def _reach(head: str, api: ApiAnswer, name: str, shows_itself: bool) -> Reach:
    known: Mapping[str, Any] = api.nodes.get(name) or {}
    link: Mapping[str, Any] = known.get("link") or {}
    to_node = bool(known.get("reachable"))
    return Reach(
        head=head,
        to_node=to_node,
        to_head=None if to_node else shows_itself,
        network=link.get("network"),
        address=link.get("address"),
        port=link.get("port"),
        rtt_seconds=link.get("rtt_seconds"),
        bytes_per_second=link.get("bytes_per_second"),
        error=_without_name(name, link.get("last_error")),
    )


def _without_name(name: str, error: object) -> str | None:
    return plain_of(name, str(error)) if error else None


def _service(look: Look[Any] | None) -> Service:
    if look is None:
        return Service("not asked", reason="no SSH")
    if look.error is not None:
        return Service("not reached", reason=look.error)
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


def _memory(card: Card) -> Memory | None:
    return None


def _totals(nodes: tuple[NodeStatus, ...], apis: Mapping[str, ApiAnswer]) -> Totals:
    counting = [node.card for node in nodes if node.role == "head" and node.card and not node.card.stale]
    counters: dict[str, Number | None] = {
        name.value: sum(card.counters.get(name.value, 0) for card in counting) if counting else None for name in TOTALS
    }
    if not apis:
        return Totals(counters)
    reasons: dict[str, Number] = {}
    workers: dict[str, dict[str, Number]] = {}
    for api in apis.values():
        _add(reasons, api.summary.get("fallbacks_by_reason"))
        for worker, values in (api.summary.get("by_worker") or {}).items():
            _add(workers.setdefault(worker, {}), values)
    return Totals(counters, reasons, workers)


def _add(sums: dict[str, Number], values: object) -> None:
    if isinstance(values, Mapping):
        for name, value in values.items():
            sums[str(name)] = sums.get(str(name), 0) + value


def _fleet_notes(inventory: Inventory) -> tuple[str, ...]:
    cache = inventory.cache
    if cache.window is None:
        return ()
    return (f"of longer prompts the first {cache.sink} and the last {cache.window} tokens are kept, others forgotten",)


__all__ = ["LIVELY_SECONDS", "PATIENCE_SECONDS", "judge"]
