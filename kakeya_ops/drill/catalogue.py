"""The kinds of fault that a drill knows: pure data. What each does is in `kakeya_ops.serving.fault_door` and beside it.

What is expected of a request that meets a fault is one of the head's fallback reasons, ``remote`` (the prefix came from
the worker in spite of it) or ``avoided`` (the head did not ask the worker, and nothing was to be counted).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kakeya_ops.wire.drills import FATAL, Act, Fault, On

Trial = Literal["fault", "card", "intrusion", "joint", "head"]
"""``fault``: armed in the worker; ``card``: what is said of the worker to the head; ``intrusion``: somebody calls the
worker who must not; ``joint``: armed in one of two workers that deliver together; ``head``: armed in the head."""
Claim = Literal["unhealthy", "other identity", "other arithmetic", "expired", "duplicate"]
Intrusion = Literal["in clear", "with a stranger's certificate"]

BY_USE = "gone after one request, after seconds, or with the drill"
BY_NEWS = "taken back; gone by itself after seconds"
BY_REVIVAL = "its supervisor starts the process again"
BY_NOTHING = "nothing to undo: it is refused"

_REMOTE = frozenset({"remote"})
_ANY_HELP = frozenset({"skip-local-pool"})
_OTHERS_POOLS = _REMOTE | _ANY_HELP
_PATIENT_USES = 4
"""A call whose idle connection breaks is made once more."""
_TRIALS: dict[On, Trial] = {"now": "head", "fetch": "joint"}


@dataclass(frozen=True)
class Kind:
    """One kind of fault: what it does, how it is brought about, what a request may come to, and how it ends.

    `modes` are those of the directive under which the request is sent.
    """

    name: str
    what: str
    expected: frozenset[str]
    fault: Fault | None = None
    claim: Claim | None = None
    intrusion: Intrusion | None = None
    modes: frozenset[str] = _REMOTE
    undone: str = field(default=BY_USE)

    @property
    def trial(self) -> Trial:
        """Where it is brought about."""
        if self.fault is None:
            return "card" if self.claim else "intrusion"
        return _TRIALS.get(self.fault.on, "fault")

    @property
    def fatal(self) -> bool:
        """Whether it ends a process, so that something must start it again."""
        return self.fault is not None and self.fault.act in FATAL


def _kind(name: str, what: str, expected: str, fault: Fault, modes: frozenset[str] = _REMOTE) -> Kind:
    undone = BY_REVIVAL if fault.act in FATAL else BY_USE
    uses = _PATIENT_USES if fault.on == "prefill" else fault.uses
    armed = fault.model_copy(update={"uses": uses})
    return Kind(name, what, frozenset(expected.split()), armed, modes=modes, undone=undone)


def _stream(name: str, what: str, expected: str, act: Act, **more: object) -> Kind:
    return _kind(name, what, expected, Fault.model_validate({"act": act, **more}))


def _lookup(name: str, what: str, expected: str, act: Act, seconds: float = 0.0) -> Kind:
    # Whoever demands the worker waits longer for it: only so is a machine that is busy told from one that is late.
    modes = _ANY_HELP if seconds else _REMOTE
    return _kind(name, what, expected, Fault(act=act, on="lookup", seconds=seconds, uses=2), modes)


def _card(name: str, what: str, claim: Claim) -> Kind:
    return Kind(name, what, frozenset({"avoided"}), claim=claim, undone=BY_NEWS)


def _intrusion(name: str, what: str, intrusion: Intrusion) -> Kind:
    return Kind(name, what, _REMOTE, intrusion=intrusion, undone=BY_NOTHING)


CATALOGUE: tuple[Kind, ...] = (
    _stream("cut-first", "the connection breaks in the first block", "unreachable", Act.CUT, at="first"),
    _stream("cut-middle", "the connection breaks in mid-stream", "unreachable", Act.CUT),
    _stream("cut-last", "the connection breaks in the last block", "unreachable", Act.CUT, at="last"),
    _stream("corrupt-first", "one bit of the first block is wrong", "corrupt", Act.FLIP, at="first"),
    _stream("corrupt-middle", "one bit of a block in mid-stream is wrong", "corrupt", Act.FLIP),
    _stream("corrupt-last", "one bit of the last block is wrong", "corrupt", Act.FLIP, at="last"),
    _stream("corrupt-head", "one bit of a frame's head is wrong", "corrupt", Act.FLIP_HEAD),
    _stream("garbage", "random bytes come in the place of a frame", "corrupt", Act.GARBAGE),
    _stream("oversized-frame", "a frame announces two gigabytes", "corrupt", Act.OVERSIZE),
    _stream("repeated-frame", "a frame comes twice", "corrupt", Act.REPEAT),
    _stream("missing-frame", "a frame is missing", "corrupt", Act.DROP),
    _stream("swapped-frames", "two frames change places", "corrupt", Act.SWAP),
    _stream("foreign-block", "a block that nobody asked for, well signed", "corrupt", Act.FOREIGN),
    _stream("other-header", "the stream says that it is of another cache identity", "corrupt", Act.OTHER_HEADER),
    _stream("engine-dies", "the worker reports in mid-stream that its engine has stopped", "engine_dead", Act.ERROR),
    _stream("no-receipt", "the stream ends without a receipt", "corrupt", Act.NO_RECEIPT),
    _stream("truncated-receipt", "the receipt is cut short", "corrupt", Act.TRUNCATED_RECEIPT),
    _stream("forged-receipt", "the receipt is signed with another key", "corrupt", Act.FORGED_RECEIPT),
    _stream("changed-receipt", "the receipt was changed after it was signed", "corrupt", Act.CHANGED_RECEIPT),
    _stream("other-receipt", "the receipt is of another request", "corrupt", Act.OTHER_RECEIPT),
    _stream("wrong-receipt", "the receipt is for other blocks than those that came", "corrupt", Act.WRONG_RECEIPT),
    _stream("slow-link", "the link is several times slower than it was", "remote overrun", Act.SLOW),
    _stream(
        "paused-worker", "the worker stands still for two seconds in mid-stream", "remote overrun", Act.PAUSE, seconds=2
    ),
    _stream(
        "stalled-stream",
        "nothing more comes in mid-stream, and nobody hangs up",
        "timeout overrun",
        Act.STALL,
        seconds=25,
    ),
    _kind(
        "late-prefill",
        "the worker says again and again that it computes, and no block comes",
        "remote overrun",
        Fault(act=Act.LATE, at="first", seconds=20),
        _ANY_HELP,
    ),
    _stream("hang-up", "the worker hangs up instead of answering", "unreachable", Act.HANG_UP),
    _stream("busy-worker", "the worker's queue is full", "busy", Act.BUSY),
    _stream("full-pool", "the worker's pool has no room", "pool_full", Act.POOL_FULL),
    _stream(
        "stale-identity", "the worker has another model than its card says", "identity_mismatch", Act.OTHER_IDENTITY
    ),
    _stream("wrong-key", "the head's key is not the worker's", "signature_rejected", Act.WRONG_KEY),
    _stream("skewed-clock", "the head's clock is two minutes off", "signature_rejected", Act.SKEWED_CLOCK, seconds=120),
    _stream("replayed-request", "the worker has seen the very same request before", "signature_rejected", Act.REPLAY),
    _stream("nonsense", "something else answers at the worker's port", "refused", Act.NONSENSE),
    _lookup("slow-lookup", "the worker says too late what it holds", "timeout", Act.DELAY, 3),
    _lookup("black-hole", "the worker's port takes a request and never answers", "timeout", Act.SILENCE, 6),
    _lookup("lookup-hangs-up", "the worker hangs up when it is asked what it holds", "unreachable", Act.HANG_UP),
    _lookup("forged-reply", "the answer to a lookup is signed with another key", "corrupt", Act.FORGED_REPLY),
    _lookup("boast", "the worker says that it holds more than was asked for", "corrupt", Act.BOAST),
    _lookup("evicted", "what the worker held is gone when it is fetched", "gone", Act.PROMISE),
    _card("unhealthy-card", "the worker's card says that its engine does not answer", "unhealthy"),
    _card("other-identity-card", "the worker's card has another cache identity", "other identity"),
    _card("other-arithmetic-card", "the worker's card has another version of MLX", "other arithmetic"),
    _card("expired-card", "the worker's card has expired", "expired"),
    _card("duplicate-id", "another node calls itself by the worker's name", "duplicate"),
    _intrusion("clear-text", "somebody speaks in clear text to a port that speaks TLS", "in clear"),
    _intrusion("foreign-certificate", "somebody has a stranger's certificate", "with a stranger's certificate"),
    _stream("killed-worker", "the worker is gone in mid-stream", "unreachable", Act.DIE),
    _kind(
        "one-of-several",
        "one of two workers that deliver a prefix together breaks off",
        "remote",
        Fault(act=Act.CUT, on="fetch", at="first", uses=_PATIENT_USES),
        _OTHERS_POOLS,
    ),
    _kind("head-restart", "the head is gone while it answers", "remote", Fault(act=Act.EXIT, on="now")),
)
"""In the order in which a drill tries them: what takes longest to be undone comes last."""


def kind_named(name: str) -> Kind | None:
    """The kind called `name`, None if there is none."""
    return next((kind for kind in CATALOGUE if kind.name == name), None)


__all__ = [
    "BY_NEWS",
    "BY_NOTHING",
    "BY_REVIVAL",
    "BY_USE",
    "CATALOGUE",
    "Claim",
    "Intrusion",
    "Kind",
    "Trial",
    "kind_named",
]
