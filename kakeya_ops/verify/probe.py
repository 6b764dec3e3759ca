"""The probe: asks a head three times about one prompt that nobody has seen before, and has the answers judged.

1. cold, with the signed demand that another node computes the prefix;
2. again, with the head's own pool skipped: the prefix must come from the worker's pool;
3. locally, with no help and no pool: the control whose tokens the other two must equal.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kakeya_ops.errors import PeerRefused
from kakeya_ops.secret import Secret
from kakeya_ops.verify.checks import judge
from kakeya_ops.verify.evidence import Answer, Evidence, Facts, MissingFact
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.verify.report import Check, VerifyReport
from kakeya_ops.verify.workers import Card, find_workers
from kakeya_ops.wire.signing import DIRECTIVE_HEADER, body_digest, new_nonce, sign_directive

DECODED_TOKENS = 24
_CARD_SECONDS = 20.0
"""Longest wait for the worker's next card: several times the interval at which nodes exchange them."""
_POLL_SECONDS = 0.1
_FEWEST_WORDS = 32
"""Twice the bytes of a nonce."""
_LARGEST_BLOCK_TOKENS = 512
"""The largest that an inventory allows."""

Network = dict[str, Any]
"""The head and the nodes it knows, as it tells them."""

REQUESTS = (
    ("cold", frozenset({"remote"})),
    ("repeated", frozenset({"remote", "skip-local-pool"})),
    ("local", frozenset({"local"})),
)


@dataclass(frozen=True)
class ProbeOptions:
    """What to probe. The first of `fleet_keys` signs the demands; any of them may have signed receipts."""

    url: str
    fleet_keys: Sequence[Secret]
    min_tokens: int = 128
    worker: str | None = None
    api_key: Secret | None = None


def run_probe(options: ProbeOptions, tell: Callable[[str], None]) -> VerifyReport:
    """Probe the head at `options.url`; `tell` is told what is going on.

    Raises `PeerUnreachable` or `PeerTimeout` if the head does not answer, `PeerRefused` if it does not let the probe
    look at the fleet.
    """
    with HeadClient(options.url, options.api_key) as client:
        return _Probe(client, options, tell).run()


def probe_text(nonce: str, words: int) -> str:
    """A text of at least `words` tokens in any vocabulary, that no one can have sent before.

    It begins with the nonce, so that not even its first block was seen, and goes on with numbers drawn from it; what
    continues it well depends on all of it.
    """
    numbers = [f"{byte:02x}" for byte in islice(_byte_stream(nonce), max(words, _FEWEST_WORDS))]
    return f"{' '.join(numbers)}\nThe same numbers once more: {numbers[0]}"


def _byte_stream(nonce: str) -> Iterator[int]:
    yield from bytes.fromhex(nonce)
    block = nonce.encode()
    while True:
        block = hashlib.sha256(block).digest()
        yield from block


class _Probe:
    def __init__(self, client: HeadClient, options: ProbeOptions, tell: Callable[[str], None]) -> None:
        self._client = client
        self._options = options
        self._tell = tell
        self._answers: dict[str, Answer] = {}

    def run(self) -> VerifyReport:
        network = self._look_with_new_cards()
        head = Facts("head's own card", network.get("head"))
        check, workers = find_workers(_cards(network), self._options.worker)
        if not workers:
            return self._report(head, None, (check,))
        try:
            self._ask_thrice(head)
        except PeerRefused as error:
            refused = Check("requests answered", "failed", f"{error.message} (status {error.status})")
            return self._report(head, None, (check, refused))
        except MissingFact as missing:
            return self._report(head, None, (check, Check("head's own card", "unknown", str(missing))))
        cold, again, local = (self._answers[label] for label, _ in REQUESTS)
        card = _card_of(cold, workers)
        self._tell("waiting for the worker's next card")
        after = self._look_until(lambda now: _includes_job(_named(_cards(now), card.get("node")), cold))
        evidence = Evidence(
            keys=tuple(self._options.fleet_keys),
            min_tokens=self._options.min_tokens,
            head=head,
            head_after=Facts("head's own card afterwards", after.get("head")),
            card=Facts("worker's card", card),
            card_after=Facts("worker's card afterwards", _named(_cards(after), card.get("node"))),
            cold=cold,
            again=again,
            local=local,
        )
        return self._report(head, str(card.get("node")), (check, *judge(evidence)))

    def _ask_thrice(self, head: Facts) -> None:
        body = self._ask_cold(head)
        for label, modes in REQUESTS[1:]:
            self._ask(label, modes, body)

    def _ask_cold(self, head: Facts) -> bytes:
        """Ask about a fresh prompt and return the request's body; a prompt that proves too short is tried at length.

        A word is one token at least and two or three as a rule, and on a slow machine each one counts.
        """
        # In a prompt of a block or less there may be nothing for a worker to compute.
        tokens = max(self._options.min_tokens, min(int(head.number("block_tokens")), _LARGEST_BLOCK_TOKENS) + 1)
        body = self._completion(head, tokens // 2)
        if self._ask(*REQUESTS[0], body).prompt_tokens < tokens:
            body = self._completion(head, tokens)
            self._ask(*REQUESTS[0], body)
        return body

    def _completion(self, head: Facts, words: int) -> bytes:
        request = {
            "model": head.get("model"),
            "prompt": probe_text(new_nonce(), words),
            "temperature": 0,
            "max_tokens": DECODED_TOKENS,
            "logprobs": 1,
        }
        return json.dumps(request).encode()

    def _ask(self, label: str, modes: frozenset[str], body: bytes) -> Answer:
        self._tell(f"sending the {label} request")
        nonce = new_nonce()
        directive = sign_directive(self._options.fleet_keys[0], modes, nonce, body_digest(body), time.time())
        completion = self._client.complete(body, {DIRECTIVE_HEADER: directive})
        answer = self._answers[label] = Answer(
            label=label,
            nonce=nonce,
            request_id=completion.request_id,
            prompt_tokens=completion.prompt_tokens,
            tokens=completion.tokens,
            logprobs=completion.logprobs,
            receipt=self._client.receipt(completion.request_id),
        )
        return answer

    def _look_with_new_cards(self) -> Network:
        """The fleet once every live worker has sent a new card: so what it counts from then on is the probe's time."""
        self._tell("waiting for the workers' cards")
        first = self._client.network()
        old = self._marks(first)
        return self._look_until(lambda now: not old & self._marks(now)) if old else first

    def _marks(self, network: Network) -> set[tuple[Any, Any]]:
        """What tells the cards of the live workers from their next ones."""
        _, workers = find_workers(_cards(network), self._options.worker)
        return {(card.get("node"), card.get("issued_at")) for card in workers}

    def _look_until(self, done: Callable[[Network], bool]) -> Network:
        """The fleet as it is when `done` holds, or when waiting ends."""
        deadline = time.monotonic() + _CARD_SECONDS
        while not done(network := self._client.network()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return network

    def _report(self, head: Facts, worker: str | None, checks: tuple[Check, ...]) -> VerifyReport:
        receipts = {label: answer.receipt for label, answer in self._answers.items()}
        name = (head.document or {}).get("node")
        return VerifyReport(self._client.url, str(name), worker, checks, receipts)


def _includes_job(card: Card | None, cold: Answer) -> bool:
    """Whether `card` was issued after the job of `cold`; True as well when there is no such job to wait for."""
    try:
        finished_at = cold.facts.number("remote", "worker_receipt", "finished_at")
    except MissingFact:
        return True
    issued_at = (card or {}).get("issued_at")
    return isinstance(issued_at, int | float) and issued_at >= finished_at


def _cards(network: Network) -> Sequence[Card]:
    nodes = network.get("nodes")
    return [card for card in nodes if isinstance(card, dict)] if isinstance(nodes, list) else []


def _named(cards: Sequence[Card], node: object) -> Card | None:
    return next((card for card in cards if card.get("node") == node), None)


def _card_of(cold: Answer, workers: Sequence[Card]) -> Card:
    """The card of the worker that the receipt names, or of the first: then the receipt is refuted by it."""
    remote = (cold.receipt or {}).get("remote") or {}
    return _named(workers, remote.get("node")) or workers[0]


__all__ = ["DECODED_TOKENS", "REQUESTS", "ProbeOptions", "probe_text", "run_probe"]
