"""One thread for each source of each host: one that hangs holds up nobody but itself."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kakeya_ops.errors import InputError
from kakeya_ops.serving.presence import CARD_SECONDS
from kakeya_ops.status.asking import ApiAnswer, NoWay, PeerAnswer, plain
from kakeya_ops.status.board import Board, SourceName, Told
from kakeya_ops.status.remote_asking import HostAnswer
from kakeya_ops.wire.cards import Card


@dataclass(frozen=True)
class Poll:
    """One source of the host called `name`: `ask` asks it once, and `told` finds the cards in its answer."""

    name: str
    source: SourceName
    ask: Callable[[], Any]
    period_seconds: float
    told: Callable[[Any, float], Sequence[Told]] = lambda answer, now: ()

    def once(self, board: Board) -> None:
        """Ask, and write down on `board` what came of it."""
        board.change(self.name, lambda heard: heard.with_look(self.source, heard.look(self.source).begin(_now())))
        try:
            answer = self.ask()
        except Exception as error:  # noqa: BLE001 - the edge of a thread: whoever reads the board is told
            message, no_way = plain(self.name, error), isinstance(error, NoWay)
            board.change(
                self.name,
                lambda heard: heard.with_look(self.source, heard.look(self.source).fail(message, no_way=no_way)),
            )
            return
        board.change(
            self.name,
            lambda heard: heard.with_look(self.source, heard.look(self.source).succeed(answer)),
            self.told(answer, _now()),
        )


class Polling:
    """Runs every poll, over and over, from `start` to `stop`."""

    def __init__(self, polls: Iterable[Poll], board: Board) -> None:
        self._board = board
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(poll,), name=f"{poll.source}-{poll.name}", daemon=True)
            for poll in polls
        ]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """Ask no more; wait up to `seconds` for what is under way, which is then left alone."""
        self._ended.set()
        deadline = _now() + seconds
        for thread in self._threads:
            thread.join(max(deadline - _now(), 0))

    def _run(self, poll: Poll) -> None:
        due = _now()
        while not self._ended.is_set():
            poll.once(self._board)
            due = max(due + poll.period_seconds, _now())
            self._ended.wait(due - _now())


def cards_of_peer(name: str, answer: PeerAnswer, now: float) -> list[Told]:
    """The cards in a node's answer: its own as of now, others as old as they are by the clocks of their nodes."""
    own = answer.card
    if own is None:
        return []
    others = [
        Told(card, now - min(max(own.issued_at - card.issued_at, 0.0), card.ttl_seconds), name) for card in answer.known
    ]
    return [Told(own, now, None), *others]


def cards_of_api(answer: ApiAnswer, now: float) -> list[Told]:
    """The card that a head's own answer on its API port amounts to."""
    said = {name: answer.head[name] for name in Card.model_fields if name in answer.head}
    try:
        card = Card.parse(json.dumps({"endpoints": [], "ttl_seconds": CARD_SECONDS} | said | {"role": "head"}).encode())
    except InputError:  # of another version of this program, perhaps; its peer port has the card itself
        return []
    return [Told(card, now, None)]


def cards_of_host(answer: HostAnswer, now: float) -> list[Told]:
    """The card in a host's answer over SSH."""
    card = answer.state.card
    if isinstance(card, Card):
        return [Told(card, now, None)]
    return cards_of_api(answer.api, now) if answer.api else []


_now = time.monotonic


__all__ = ["Poll", "Polling", "cards_of_api", "cards_of_host", "cards_of_peer"]
