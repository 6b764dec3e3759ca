"""The peers that may help with a prompt, asked what they hold, and how to get it from them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from kakeya_ops.errors import KakeyaError
from kakeya_ops.serving.gather import Source
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.scheduler import Candidate

LOOKUP_SECONDS = 0.25
"""The most that asking all peers may add to a request; a slower one is left out."""


class Neighbour(Protocol):
    """One peer with the same cache identity that is in good standing now."""

    @property
    def node(self) -> str:
        """Its node id."""

    def look_up(self, prompt: Prompt) -> Candidate:
        """Ask it what it holds of `prompt`. Raises `PeerError`."""

    def source(self) -> Source:
        """The way to get blocks from it."""


class Neighbourhood(Protocol):
    """Who is there."""

    def usable(self) -> Iterable[Neighbour]:
        """Peers with an equal identity that are healthy and not in a pause after failures."""

    def failed(self, node: str) -> None:
        """Keep `node` out for a while."""

    def succeeded(self, node: str) -> None:
        """Take `node` as healthy again."""

    def transferred(self, node: str, count_bytes: int, seconds: float) -> None:
        """Take a finished transfer as a measurement of the link to `node`."""


@dataclass(frozen=True)
class Survey:
    """What the peers answered in time."""

    candidates: tuple[Candidate, ...]
    sources: dict[str, Source]
    seconds: float


def survey(neighbourhood: Neighbourhood, prompt: Prompt, executor: ThreadPoolExecutor) -> Survey:
    """Ask every usable peer at once, for at most `LOOKUP_SECONDS`; who fails or is late is left out."""
    began = time.monotonic()
    asked = {
        neighbour.node: (neighbour, executor.submit(neighbour.look_up, prompt)) for neighbour in neighbourhood.usable()
    }
    candidates = []
    for neighbour, answer in asked.values():
        candidate = _await(answer, began + LOOKUP_SECONDS - time.monotonic())
        if candidate:
            candidates.append(candidate)
        else:
            neighbourhood.failed(neighbour.node)
    sources = {candidate.node: asked[candidate.node][0].source() for candidate in candidates}
    return Survey(tuple(candidates), sources, time.monotonic() - began)


def _await(answer: Future[Candidate], seconds: float) -> Candidate | None:
    try:
        return answer.result(max(seconds, 0))
    except (KakeyaError, TimeoutError):
        answer.cancel()
        return None


__all__ = ["LOOKUP_SECONDS", "Neighbour", "Neighbourhood", "Survey", "survey"]
