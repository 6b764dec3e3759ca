"""Judges what a probe saw: pure functions from evidence to checks, no I/O.

Every word in the evidence may be a lie. What counts is what the fleet's key has signed about the probe's own requests,
each of which carried a nonce of its own; and, because a signature does not prove that the right KV was shipped, that
the answer decoded from it equals one that the head computed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kakeya_ops.errors import SignatureRejected
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.secret import Secret
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.receipts import PURPOSE as HEAD_RECEIPT
from kakeya_ops.units import render_bytes
from kakeya_ops.verify.evidence import Answer, Evidence, Facts, MissingFact
from kakeya_ops.verify.report import Check
from kakeya_ops.wire.bodies import WORKER_RECEIPT_PURPOSE as WORKER_RECEIPT
from kakeya_ops.wire.signing import verify_document

COMPUTED_COUNTER = CounterName.TOKENS_COMPUTED.value
FEWEST_TOKENS = 8
"""Decoded tokens below which their equality proves little."""
LOGPROB_TOLERANCE = 0.05
"""Largest difference of a chosen token's log-probability: other requests in the batch move it by far less, another
prompt's KV by far more."""


class Refuted(Exception):
    """A check does not hold; the message says why, with numbers."""


def judge(evidence: Evidence) -> tuple[Check, ...]:
    """Every check of `RULES`, in order; without a remote part those of `ABOUT_REMOTE` have nothing to judge."""
    bare = evidence.cold.facts.value("remote") is None
    return tuple(_apply(name, rule, evidence) for name, rule in RULES if not (bare and rule in ABOUT_REMOTE))


def _apply(name: str, rule: Callable[[Evidence], str], evidence: Evidence) -> Check:
    try:
        return Check(name, "ok", rule(evidence))
    except Refuted as reason:
        return Check(name, "failed", str(reason))
    except MissingFact as missing:
        return Check(name, "unknown", str(missing))


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Refuted(otherwise)


def _require_equal(what: str, value: object, expected: object) -> None:
    _require(value == expected, f"{what} is {value}, not {expected}")


def _require_signed(keys: Sequence[Secret], purpose: str, facts: Facts) -> None:
    mac = facts.get("mac")
    try:
        verify_document(keys, purpose, dict(facts.document or {}), str(mac))
    except SignatureRejected as error:
        raise Refuted(f"{facts.name} is not signed with the fleet's key ({error.message})") from error


def _require_own(evidence: Evidence, answer: Answer) -> None:
    """The receipt is about this very request to this very head: not another client's, not an old one."""
    receipt = answer.facts
    _require_equal("its nonce", receipt.value("client_nonce"), answer.nonce)
    _require_equal("its request id", receipt.get("request_id"), answer.request_id)
    _require_equal("its head", receipt.get("node"), evidence.head.get("node"))
    _require_equal("its head's epoch", receipt.get("epoch"), evidence.head.get("epoch"))
    _require_equal("its tenant", receipt.get("tenant"), evidence.head.get("tenant"))
    _require_equal("its prompt length", receipt.get("prompt_tokens"), answer.prompt_tokens)


def _require_no_fallback(receipt: Facts) -> None:
    if fallback := receipt.value("fallback"):
        raise Refuted(f"the head fell back to itself: {Facts('fallback', fallback).get('message')}")


def _require_remote(receipt: Facts) -> None:
    _require_no_fallback(receipt)
    _require(receipt.value("remote") is not None, "nothing came from another node")


def _head_signature(evidence: Evidence) -> str:
    _require_signed(evidence.keys, HEAD_RECEIPT, evidence.cold.facts)
    return f"signed by {evidence.cold.facts.get('node')} with the fleet's key"


def _own_request(evidence: Evidence) -> str:
    cold = evidence.cold
    _require_own(evidence, cold)
    _require(cold.prompt_tokens >= evidence.min_tokens, f"{cold.prompt_tokens} of {evidence.min_tokens} prompt tokens")
    return f"nonce {cold.nonce[:8]}…, request {cold.request_id[:8]}…, {cold.prompt_tokens} prompt tokens"


def _cold_prompt(evidence: Evidence) -> str:
    receipt = evidence.cold.facts
    _require_equal("the number of tokens from the head's own pool", receipt.number("local_pool_tokens"), 0)
    _require_equal("the number of tokens from the worker's pool", receipt.number("remote", "pool_tokens"), 0)
    return "0 tokens in the head's pool, 0 in the worker's"


def _decision(evidence: Evidence) -> str:
    receipt = evidence.cold.facts
    reason = receipt.get("decision", "reason")
    kind = receipt.get("decision", "kind")
    _require(kind == "remote_compute", f"the head decided {kind}: {reason}")
    _require_remote(receipt)
    _require_equal("the chosen worker", receipt.get("decision", "worker"), evidence.card.get("node"))
    _require_equal("what was done remotely", receipt.get("remote", "kind"), "remote_compute")
    return f"remote compute on {evidence.card.get('node')}: {reason}; no fallback"


def _worker_signature(evidence: Evidence) -> str:
    receipt = evidence.cold.facts.within("remote", "worker_receipt")
    _require_signed(evidence.keys, WORKER_RECEIPT, receipt)
    return f"signed by {receipt.get('node')} with the fleet's key"


def _worker_is_carded(evidence: Evidence) -> str:
    remote = evidence.cold.facts.within("remote")
    for receipt in (remote, remote.within("worker_receipt")):
        for field in ("node", "epoch", "instance"):
            _require_equal(f"the {field} of {receipt.name}", receipt.get(field), evidence.card.get(field))
    return f"{remote.get('node')}, epoch {remote.get('epoch')}, instance {str(remote.get('instance'))[:8]}…"


def _same_job(evidence: Evidence) -> str:
    remote = evidence.cold.facts.within("remote")
    receipt = remote.within("worker_receipt")
    _require_equal("the worker's job", receipt.get("job"), remote.get("job"))
    _require_equal("the nonce that the worker signed", receipt.get("request_nonce"), evidence.cold.nonce)
    return f"job {str(remote.get('job'))[:12]}, signed with the nonce of this request"


def _same_identity(evidence: Evidence) -> str:
    receipt = evidence.cold.facts
    expected = evidence.head.get("identity")
    _require_equal("the receipt's cache identity", receipt.get("identity"), expected)
    _require_equal("the worker's", receipt.get("remote", "worker_receipt", "identity"), expected)
    return f"{str(expected)[:12]}… on head and worker"


def _computed_there(evidence: Evidence) -> str:
    receipt = evidence.cold.facts
    prompt, floor = evidence.cold.prompt_tokens, evidence.floor_tokens
    computed = receipt.number("remote", "worker_receipt", "computed_tokens")
    _require_equal("the head's count of them", receipt.number("remote", "computed_tokens"), computed)
    own = receipt.number("local_computed_tokens")
    _require(floor <= computed <= prompt, f"{computed} tokens computed there, at least {floor} of {prompt} expected")
    _require_equal("the number of tokens computed by the head", own, prompt - floor)
    return f"{computed} of {prompt} tokens there, the last {own} here"


def _blocks(evidence: Evidence) -> str:
    remote = evidence.cold.facts.within("remote")
    digest = remote.get("worker_receipt", "blocks_digest")
    _require_equal("the digest over the blocks that arrived", remote.get("blocks_digest"), digest)
    blocks, expected = remote.number("blocks"), evidence.floor_blocks
    _require(0 < blocks <= expected, f"{blocks} blocks arrived, 1 to {expected} expected")
    return f"{blocks} blocks arrived as the worker signed them, digest {str(digest)[:12]}…"


def _payload(evidence: Evidence) -> str:
    received = evidence.cold.facts.number("remote", "payload_bytes")
    layout = _layout(evidence)
    _require_equal("the model's block in tokens", layout.block_tokens, evidence.block_tokens)
    blocks = evidence.floor_blocks
    least = sum(layout.parts[part].nbytes for _, part in layout.needed(blocks))
    most = blocks * sum(part.nbytes for part in layout.parts)
    bounds = f"{render_bytes(least)} to {render_bytes(most)}"
    _require(least <= received <= most, f"{render_bytes(received)} arrived; {blocks} blocks of this model are {bounds}")
    return f"{render_bytes(received)} for {blocks} blocks, as this model's layout demands"


def _layout(evidence: Evidence) -> KvLayout:
    """The layout in the head's identity document, for which the digest in its signed receipt vouches."""
    document = evidence.head.within("identity_document").document or {}
    try:
        identity = CacheIdentity.from_json(dict(document))
    except (KeyError, TypeError, ValueError) as error:
        raise MissingFact(f"the head's identity document cannot be read: {error}") from error
    expected = evidence.cold.facts.get("identity")
    _require_equal("the digest of the head's identity document", identity.digest, expected)
    return identity.layout


def _worker_counters(evidence: Evidence) -> str:
    before, after = evidence.card, evidence.card_after
    _require_equal("the worker's epoch afterwards", after.get("epoch"), before.get("epoch"))
    # Both are times on the worker's own clock.
    if after.number("issued_at") < evidence.cold.facts.number("remote", "worker_receipt", "finished_at"):
        raise MissingFact("the worker's card is older than its job")
    grown = after.number("counters", COMPUTED_COUNTER) - before.number("counters", COMPUTED_COUNTER)
    computed = evidence.cold.facts.number("remote", "worker_receipt", "computed_tokens")
    _require(grown >= computed, f"{COMPUTED_COUNTER} grew by {grown:.0f}, the job alone has {computed:.0f}")
    return f"{COMPUTED_COUNTER} grew by {grown:.0f}, the job has {computed:.0f}"


def _remote_hit(evidence: Evidence) -> str:
    receipt = evidence.again.facts
    _require_signed(evidence.keys, HEAD_RECEIPT, receipt)
    _require_own(evidence, evidence.again)
    _require_remote(receipt)
    _require_equal("the number of tokens from the head's own pool", receipt.number("local_pool_tokens"), 0)
    _require_equal("the number of tokens computed there", receipt.number("remote", "computed_tokens"), 0)
    held = receipt.number("remote", "pool_tokens")
    _require(held >= evidence.floor_tokens, f"{held} tokens came from the worker's pool, not {evidence.floor_tokens}")
    own = evidence.again.prompt_tokens - evidence.floor_tokens
    _require_equal("the number of tokens computed by the head", receipt.number("local_computed_tokens"), own)
    return f"{held} tokens from the pool of {receipt.get('remote', 'node')}, 0 computed there, {own} here"


def _local_control(evidence: Evidence) -> str:
    receipt = evidence.local.facts
    _require_signed(evidence.keys, HEAD_RECEIPT, receipt)
    _require_own(evidence, evidence.local)
    _require(receipt.value("remote") is None, "the local control had help from another node")
    _require_equal("the number of tokens from the head's own pool", receipt.number("local_pool_tokens"), 0)
    _require_equal(
        "the number of tokens computed", receipt.number("local_computed_tokens"), evidence.local.prompt_tokens
    )
    return f"all {evidence.local.prompt_tokens} tokens computed by {receipt.get('node')} itself"


def _same_tokens(evidence: Evidence) -> str:
    local = evidence.local
    if len(local.tokens) < FEWEST_TOKENS:
        raise MissingFact(f"the local answer has {len(local.tokens)} tokens, {FEWEST_TOKENS} are needed")
    apart = max(_logprobs_apart(answer, local) for answer in (evidence.cold, evidence.again))
    return f"{len(local.tokens)} greedy tokens equal in all three answers, log-probabilities at most {apart:.2g} apart"


def _logprobs_apart(answer: Answer, local: Answer) -> float:
    """How far the log-probabilities are apart, if tokens are equal and log-probabilities within the tolerance."""
    first = next(
        (i for i, pair in enumerate(zip(answer.tokens, local.tokens, strict=False)) if len(set(pair)) > 1), None
    )
    _require(answer.tokens == local.tokens, f"the {answer.label} answer differs from the local one at token {first}")
    _require_equal(f"the {answer.label} answer's prompt length", answer.prompt_tokens, local.prompt_tokens)
    if not len(answer.logprobs) == len(local.logprobs) == len(local.tokens):
        raise MissingFact(f"the {answer.label} or the local answer has no log-probabilities")
    gaps = [abs(a - b) for a, b in zip(answer.logprobs, local.logprobs, strict=True)]
    within = all(gap <= LOGPROB_TOLERANCE for gap in gaps)
    _require(within, f"same tokens, but log-probabilities of the {answer.label} answer are {max(gaps):.3g} apart")
    return max(gaps)


def _head_epoch(evidence: Evidence) -> str:
    _require_equal("the head's epoch afterwards", evidence.head_after.get("epoch"), evidence.head.get("epoch"))
    return f"{evidence.head.get('epoch')} before and after"


RULES: tuple[tuple[str, Callable[[Evidence], str]], ...] = (
    ("head's signature", _head_signature),
    ("receipt of this request", _own_request),
    ("cold prompt", _cold_prompt),
    ("remote compute, no fallback", _decision),
    ("worker's signature", _worker_signature),
    ("worker is the one on the card", _worker_is_carded),
    ("worker's job", _same_job),
    ("cache identity", _same_identity),
    ("tokens computed there", _computed_there),
    ("blocks received", _blocks),
    ("bytes received", _payload),
    ("worker's own counters", _worker_counters),
    ("same prompt again: remote hit", _remote_hit),
    ("local control", _local_control),
    ("same tokens", _same_tokens),
    ("head did not restart", _head_epoch),
)
"""Each rule returns its numbers, or raises `Refuted` or `MissingFact`."""

ABOUT_REMOTE = (
    _cold_prompt,
    _worker_signature,
    _worker_is_carded,
    _same_job,
    _same_identity,
    _computed_there,
    _blocks,
    _payload,
    _worker_counters,
)
"""Rules about what another node did. Where no other node did anything, the rule about the decision fails."""

__all__ = [
    "ABOUT_REMOTE",
    "COMPUTED_COUNTER",
    "FEWEST_TOKENS",
    "LOGPROB_TOLERANCE",
    "RULES",
    "Refuted",
    "judge",
]
