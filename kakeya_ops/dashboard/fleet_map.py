"""The fleet around the head: every other node with the way to it, what it is doing, and why it is not used."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.dashboard import words
from kakeya_ops.dashboard.elements import Box, Rows, Section, Words, mark
from kakeya_ops.dashboard.reading import Reading, Value

_BAD = ("unreachable", "failing", "two nodes with this id", "in quarantine")
_STATES = {"usable": "good", "here": "good"} | dict.fromkeys(_BAD, "bad")
"""How a state of the topology is coloured; the others are warnings."""


@dataclass(frozen=True)
class Place:
    """One node of the map as it is shown."""

    name: str
    role: str
    state: str
    link: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    pool: tuple[float, float]
    trouble: str


class FleetMap:
    """The section: the head, and beside it the others, each at the end of its link."""

    def __init__(self) -> None:
        section = Section("fleet", "Fleet")
        self._note = section.note
        with section.body, Box("div", "map"):
            with Box("div", "here"):
                self._head = _Node("div")
            self._peers = Box("ul", "peers", aria_label="Nodes around the head")
        self._rows = Rows(self._peers, _Peer)

    def show(self, reading: Reading) -> None:
        """Show the fleet of `reading`."""
        self._head.show(_head_place(reading.nodes["head"]))
        places = peer_places(reading)
        self._rows.show(places)
        usable = sum(place.state == "usable" for place in places)
        self._note.say(f"{usable} of {len(places)} other nodes usable" if places else "the head is alone")


def peer_places(reading: Reading) -> list[Place]:
    """The nodes around the head, in the order of the topology."""
    links = {link["to"]: link for link in reading.topology["links"]}
    states = {node["node"]: node["state"] for node in reading.topology["nodes"]}
    return [_place(node, states.get(node["node"], "?"), links.get(node["node"], {})) for node in reading.nodes["nodes"]]


def fleet_sentence(reading: Reading) -> str:
    """What is wrong with the fleet in one sentence, for whoever does not see the map."""
    faults = [f"{place.name} is {place.state}" for place in peer_places(reading) if place.state != "usable"]
    if not reading.nodes["head"].get("healthy"):
        faults.insert(0, "the head's engine does not answer")
    return "; ".join(faults) if faults else "every node is usable"


def _head_place(head: Value) -> Place:
    state = "here" if head.get("healthy") else "failing"
    facts = (("Model", words.plain(head["model"])), ("Policy", words.plain(head["policy"]).replace("_", " ")))
    trouble = words.plain(head["reason"] or "")
    return Place(words.plain(head["node"]), _role(head), state, (), facts + _facts(head), _pool(head), trouble)


def _place(node: Value, state: str, link: Value) -> Place:
    known = _facts(node) if node.get("load") else ()
    name = words.plain(node["node"])
    return Place(
        name, _role(node), words.plain(state), _link_words(link), known, _pool(node), _trouble(node, link, state)
    )


def _role(node: Value) -> str:
    version = node.get("version")
    return words.plain(f"{node['role']} {version}" if version else node["role"])


def _link_words(link: Value) -> tuple[str, ...]:
    if not link.get("up"):
        return (f"{words.plain(link.get('network') or 'no')} link down",)
    rtt = f"RTT {words.duration(link['rtt_seconds'])}" if link.get("rtt_seconds") is not None else "RTT not measured"
    rate = words.rate(link["bytes_per_second"]) if link.get("bytes_per_second") else "rate not measured"
    return words.plain(link.get("network") or "link"), rtt, rate


def _trouble(node: Value, link: Value, state: str) -> str:
    """Why the node is not used, in the words of whoever found out."""
    if held := node.get("quarantine"):
        return words.plain(held["reason"])
    if link.get("one_way"):
        away = "the head reaches it, but it does not reach the head"
        return away if link.get("up") else "it reaches the head, but the head does not reach it"
    if state == "unreachable":
        return words.plain(link.get("error") or "it does not answer")
    difference = node.get("identity_difference")
    if difference:
        return words.plain(", ".join(f"{name} {value}" for name, value in difference.items()))
    return words.plain(node.get("reason") or "")


def _facts(node: Value) -> tuple[tuple[str, str], ...]:
    load, memory = node.get("load") or {}, node.get("memory") or {}
    facts = {
        "Prefill": f"{words.speed(node['prefill_tokens_per_second'])} tokens/s",
        "Jobs": f"{load.get('running', 0)} running, {load.get('queued', 0)} queued",
        "Memory taken": words.size(memory.get("footprint_bytes")),
        "Memory free": words.size(node["free_memory_bytes"]),
    }
    if node["prefill_tokens_per_second"] is None:
        del facts["Prefill"]
    return tuple(facts.items())


def _pool(node: Value) -> tuple[float, float]:
    pool = node.get("pool") or {}
    return pool.get("used_bytes", 0), pool.get("budget_bytes", 0)


class _Node:
    """One node's card."""

    def __init__(self, tag: str) -> None:
        self.box = Box(tag, "node")
        with self.box:
            with Box("div", "node-head"):
                self._name = Words("h3", "")
                self._role = Words("span", "", "role")
                self._state = Words("span", "", "state")
            self._trouble = Words("p", "", "trouble")
            self._facts = Rows(Box("dl", "facts"), _Fact)
            self._pool = _Gauge("Pool")

    def show(self, place: Place) -> None:
        self._name.say(place.name)
        self._role.say(place.role)
        self._state.say("serving" if place.state == "here" else place.state)
        mark(self.box, _STATES.get(place.state, "warn"))
        self._trouble.say(place.trouble)
        self._trouble.set_visibility(bool(place.trouble))
        self._facts.show(place.facts)
        self._pool.show(*place.pool)


class _Peer:
    """A node at the end of its link."""

    def __init__(self) -> None:
        self._item = Box("li", "peer")
        with self._item:
            self._link = Rows(Box("p", "link"), lambda: _Text("span"))
            self._node = _Node("div")

    def show(self, value: Place) -> None:
        self._link.show(value.link)
        self._node.show(value)
        mark(self._item, _STATES.get(value.state, "warn"))

    def delete(self) -> None:
        self._item.delete()


class _Text:
    def __init__(self, tag: str) -> None:
        self._words = Words(tag)

    def show(self, value: str) -> None:
        self._words.say(value)

    def delete(self) -> None:
        self._words.delete()


class _Fact:
    def __init__(self) -> None:
        self._box = Box("div")
        with self._box:
            self._name, self._value = Words("dt"), Words("dd")

    def show(self, value: tuple[str, str]) -> None:
        self._name.say(value[0])
        self._value.say(value[1])

    def delete(self) -> None:
        self._box.delete()


class _Gauge:
    """How much of something is used, as a bar under its words; unseen where there is none."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._box = Box("div", "gauge")
        with self._box:
            self._words = Words("span")
            with Box("div", "bar", aria_hidden="true"):
                self._fill = Box("span", "part")

    def show(self, used: float, budget: float) -> None:
        self._words.say(f"{self._label} {words.size(used)} of {words.size(budget)}")
        self._fill.style(f"width:{min(100 * used / budget, 100) if budget else 0:.1f}%")
        self._box.set_visibility(budget > 0)


__all__ = ["FleetMap", "Place", "fleet_sentence", "peer_places"]
