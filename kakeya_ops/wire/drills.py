"""What a fire drill asks of a node: to behave badly in one way, for one purpose, for a short time."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from kakeya_ops.wire.body import Count, Name, Nonce, WireBody

LONGEST_SECONDS = 120.0
"""The longest that a fault stays armed."""
MOST_USES = 64

On = Literal["lookup", "fetch", "prefill", "now"]
"""Which requests meet a fault; ``now`` is none, but the node itself, at once."""
At = Literal["first", "middle", "last"]
"""Which block frame of a stream."""


class Act(StrEnum):
    """What is done. Those after `CUT` are done to a stream, or to one of its frames."""

    DELAY = "delay"
    SILENCE = "silence"
    HANG_UP = "hang_up"
    BUSY = "busy"
    POOL_FULL = "pool_full"
    OTHER_IDENTITY = "other_identity"
    NONSENSE = "nonsense"
    WRONG_KEY = "wrong_key"
    SKEWED_CLOCK = "skewed_clock"
    REPLAY = "replay"
    FORGED_REPLY = "forged_reply"
    PROMISE = "promise"
    BOAST = "boast"
    EXIT = "exit"
    CUT = "cut"
    FLIP = "flip"
    FLIP_HEAD = "flip_head"
    STALL = "stall"
    LATE = "late"
    SLOW = "slow"
    PAUSE = "pause"
    GARBAGE = "garbage"
    OVERSIZE = "oversize"
    REPEAT = "repeat"
    DROP = "drop"
    SWAP = "swap"
    FOREIGN = "foreign"
    ERROR = "error"
    DIE = "die"
    OTHER_HEADER = "other_header"
    NO_RECEIPT = "no_receipt"
    TRUNCATED_RECEIPT = "truncated_receipt"
    FORGED_RECEIPT = "forged_receipt"
    CHANGED_RECEIPT = "changed_receipt"
    OTHER_RECEIPT = "other_receipt"
    WRONG_RECEIPT = "wrong_receipt"


FATAL = frozenset({Act.EXIT, Act.DIE})
"""Acts after which the process is gone."""
ON_STREAMS = frozenset(list(Act)[list(Act).index(Act.CUT) :])
"""Acts on streams."""


class Fault(WireBody):
    """One fault as it is armed.

    `seconds` is how long a delay, silence, stall, pause or lateness lasts, or how far a clock is off;
    `bytes_per_second` is a slow stream's rate. With a `nonce` only the prefill request that carries it meets the fault.
    It is gone after `uses` requests, or `lifetime_seconds`, whichever comes first.
    """

    act: Act
    on: On = "prefill"
    at: At = "middle"
    seconds: Annotated[float, Field(ge=0, le=LONGEST_SECONDS)] = 0.0
    bytes_per_second: Annotated[int, Field(ge=1, lt=2**40)] = 1_000_000
    nonce: Nonce | None = None
    uses: Annotated[int, Field(ge=1, le=MOST_USES)] = 1
    lifetime_seconds: Annotated[float, Field(gt=0, le=LONGEST_SECONDS)] = 30.0

    model_config = WireBody.model_config | {"strict": False}


class DrillRequest(WireBody):
    """``POST /v1/drill``: arm `fault` in place of what is armed; None only disarms."""

    fault: Fault | None


class DrillState(WireBody):
    """How a node stands after a `DrillRequest`.

    `met` requests have met the fault that was armed before. `revived` is whether something starts the process again
    when it ends: else it refuses faults that end it.
    """

    node: Name
    instance: Nonce
    revived: bool
    armed: Act | None
    met: Count


__all__ = [
    "FATAL",
    "LONGEST_SECONDS",
    "MOST_USES",
    "ON_STREAMS",
    "Act",
    "At",
    "DrillRequest",
    "DrillState",
    "Fault",
    "On",
]
