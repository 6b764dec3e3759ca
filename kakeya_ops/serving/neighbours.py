"""The peers that may help with a prompt, asked what they hold, and how to get it from them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from kakeya_ops.errors import PeerError, PeerTimeout
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.serving.joint_fetch import Offer
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.receipts import RemotePart
from kakeya_ops.serving.scheduler import Candidate, Decision
from kakeya_ops.serving.supply import Source

LOOKUP_SECONDS = 0.25
"""The most that asking all peers may add to a request; a slower one is left out."""
DEMANDED_LOOKUP_SECONDS = 2.0
"""The same where the prefix must not be computed here: then there is nothing to gain by going on without them."""


class Neighbour(Protocol):
    """One peer with the same cache identity that is in good standing now."""

    @property
    def node(self) -> str:
        """Its node id."""

    def look_up(self, prompt: Prompt, stop: StopFlag) -> Candidate:
        """Ask it what it holds of `prompt`. Raises `PeerError`, also when `stop` is set."""

    def source(self) -> Source:
        """The way to get blocks from it."""


class Neighbourhood(Protocol):
    """Who is there."""

    def usable(self) -> Iterable[Neighbour]:
        """Peers with an equal identity that are healthy and not in a pause after failures."""

    def engaged(self, node: str, seconds: float) -> AbstractContextManager[None]:
        """Take `node` as busy with an errand within it, by its prediction for `seconds`."""

    def failed(self, node: str, reason: str) -> None:
        """Keep `node` out for a while, or only the way to it where the fault may be that and there is another."""

    def succeeded(self, node: str) -> None:
        """Take `node` as healthy again."""

    def transferred(self, remote: RemotePart) -> None:
        """Learn from what was delivered: from a transfer the link, from a job the worker too."""


@dataclass(frozen=True)
class Survey:
    """What the peers answered in time, and in `faults` why others did not."""

    candidates: tuple[Candidate, ...] = ()
    sources: dict[str, Source] = field(default_factory=dict)
    faults: tuple[PeerError, ...] = ()
    seconds: float = 0.0

    def offers(self, decision: Decision, own_blocks: int) -> list[Offer]:
        """Who, besides the peer that `decision` is for, holds more than the `own_blocks` at hand already."""
        return [
            Offer(self.sources[one.node], min(one.resume_blocks, decision.blocks))
            for one in self.candidates
            if one.node != decision.node and one.resume_blocks > own_blocks
        ]


@dataclass(frozen=True)
class Inquiry:
    """A prompt about which peers, or only `node`, are asked for at most `limit_seconds`, or until `stop`."""

    prompt: Prompt
    stop: StopFlag
    limit_seconds: float = LOOKUP_SECONDS
    node: str | None = None


def survey(neighbourhood: Neighbourhood, inquiry: Inquiry, executor: ThreadPoolExecutor) -> Survey:
    """Ask every usable peer at once; who fails or is late is left out, now and for a while."""
    began = time.monotonic()
    wanted = (one for one in neighbourhood.usable() if inquiry.node in (None, one.node))
    asked = [(one, executor.submit(one.look_up, inquiry.prompt, inquiry.stop)) for one in wanted]
    candidates, sources, faults = [], {}, []
    for neighbour, answer in asked:
        found = _await(neighbour.node, answer, began + inquiry.limit_seconds - time.monotonic())
        if isinstance(found, Candidate):
            candidates.append(found)
            sources[neighbour.node] = neighbour.source()
        elif not inquiry.stop.stopped:
            faults.append(found)
            neighbourhood.failed(neighbour.node, found.reason)
    return Survey(tuple(candidates), sources, tuple(faults), time.monotonic() - began)


def _await(node: str, answer: Future[Candidate], seconds: float) -> Candidate | PeerError:
    try:
        return answer.result(max(seconds, 0))
    except PeerError as error:
        return error
    except TimeoutError:
        answer.cancel()
        return PeerTimeout(node, "did not say in time what it holds")


__all__ = ["DEMANDED_LOOKUP_SECONDS", "LOOKUP_SECONDS", "Inquiry", "Neighbour", "Neighbourhood", "Survey", "survey"]
