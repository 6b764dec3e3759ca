"""What a receipt says, in the order in which it happened, and in one sentence what was gained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kakeya_ops.serving.receipts import Receipt, RemotePart, SourcePart

Step = Literal["queue", "lookup", "compute", "transfer", "import", "suffix", "first token"]


@dataclass(frozen=True)
class Span:
    """One step on `node`: when it began after the request came, how long it took, and what it was about.

    Steps overlap: a worker computes while its blocks are transferred, and they are imported as they arrive.
    """

    step: Step
    node: str
    began_seconds: float
    seconds: float
    detail: str

    def to_json(self) -> dict[str, Any]:
        """A plain value."""
        return asdict(self)


def timeline(receipt: Receipt) -> tuple[Span, ...]:
    """The steps of `receipt`, by when they began. Those that did not occur are left out."""
    return tuple(sorted(_spans(receipt), key=lambda span: span.began_seconds))


def _spans(receipt: Receipt) -> Iterator[Span]:
    times, node = receipt.times, receipt.node
    queued, lookup = times.get("queued", 0.0), times.get("lookup", 0.0)
    end = times.get("first_token", 0.0)
    gathered = min(times.get("gathered", queued + lookup), end)
    yield Span("queue", node, 0.0, queued, "until the head took it up")
    yield Span("lookup", node, queued, lookup, f"{receipt.decision.kind.replace('_', ' ')}: {receipt.decision.reason}")
    yield from _remote_spans(receipt, gathered)
    if imported := times.get("import"):
        yield Span("import", node, max(gathered - imported, 0.0), imported, f"{receipt.cached_tokens} tokens")
    prefilled = min(times.get("prefilled", gathered), end)
    if prefilled > gathered:
        computed = f"{max(receipt.local_computed_tokens - 1, 0)} tokens computed by the head"
        yield Span("suffix", node, gathered, prefilled - gathered, computed)
    yield Span("first token", node, prefilled, end - prefilled, "the prompt's last token")


def _remote_spans(receipt: Receipt, gathered: float) -> Iterator[Span]:
    """The way of the blocks, and beside it the worker at work, which began after its own queue."""
    imported = receipt.times.get("import", 0.0)
    if fallback := receipt.fallback:
        wasted = receipt.times.get("wasted", 0.0)
        began = max(gathered - imported - wasted, 0.0)
        yield Span("transfer", fallback.worker, began, wasted, f"broke: {fallback.message}")
    if remote := receipt.remote:
        began = max(gathered - remote.transfer_seconds, 0.0)
        if remote.sources:
            yield from (_source_span(source, began) for source in remote.sources)
        else:
            yield Span("transfer", remote.node, began, remote.transfer_seconds, _describe_blocks(remote))
        if worker := remote.worker_receipt:
            began += _seconds(worker, "queue_seconds")
            tokens = f"{remote.computed_tokens} tokens"
            yield Span("compute", remote.node, began, _seconds(worker, "compute_seconds"), tokens)


def _source_span(source: SourcePart, began: float) -> Span:
    """One of several at the same time: how long its streams took, all together."""
    broke = f"; broke: {source.fault}" if source.fault else ""
    detail = f"{source.blocks} blocks, {source.payload_bytes} bytes{broke}"
    return Span("transfer", source.node, began, source.transfer_seconds, detail)


def _describe_blocks(remote: RemotePart) -> str:
    return f"{remote.blocks} blocks, {remote.payload_bytes} bytes, {remote.tokens} tokens"


def _seconds(worker_receipt: Mapping[str, Any], name: str) -> float:
    value = worker_receipt.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def explain_gain(receipt: Receipt) -> str:
    """One sentence: which gain applied, and what it rests on."""
    sentence = _GAINS[receipt.gain](receipt)
    if fallback := receipt.fallback:
        return f"{sentence} {fallback.worker} did not deliver ({fallback.reason}), so that the head fell back."
    return sentence


def _reuse(receipt: Receipt) -> str:
    sources = [f"{receipt.local_pool_tokens} from the head's own pool"] if receipt.local_pool_tokens else []
    if receipt.remote and receipt.remote.pool_tokens:
        nodes = [source.node for source in receipt.remote.sources if source.blocks] or [receipt.remote.node]
        whose = f"pools of {', '.join(nodes)}" if len(nodes) > 1 else f"pool of {nodes[0]}"
        sources.append(f"{receipt.remote.pool_tokens} from the {whose}")
    reused = receipt.local_pool_tokens + (receipt.remote.pool_tokens if receipt.remote else 0)
    return f"Reuse: {reused} of {receipt.prompt_tokens} prompt tokens were not computed again, {' and '.join(sources)}."


def _faster(receipt: Receipt) -> str:
    seconds = receipt.remote.transfer_seconds if receipt.remote else 0.0
    whole = f"with the way there and back it took {seconds:.3f} s, less than the head would have"
    return f"A faster worker: {_computed(receipt)}; {whole}."


def _overlap(receipt: Receipt) -> str:
    return f"Overlap: {_computed(receipt)}, while the head went on decoding for others."


def _none(receipt: Receipt) -> str:
    if receipt.remote:  # it was no faster, or either speed is not known: a receipt does not tell which
        return f"No gain was measured: {_computed(receipt)}; equal machines do not speed up one cold prompt."
    return f"No gain: the head computed all {receipt.prompt_tokens} prompt tokens itself."


def _computed(receipt: Receipt) -> str:
    remote = receipt.remote
    if remote is None:  # it says so itself, and may come from anybody
        return "no other node computed anything"
    seconds = _seconds(remote.worker_receipt or {}, "compute_seconds")
    rate = f" in {seconds:.3f} s ({remote.computed_tokens / seconds:.0f} tokens/s)" if seconds else ""
    return f"{remote.node} computed {remote.computed_tokens} of {receipt.prompt_tokens} prompt tokens{rate}"


_GAINS = {"reuse": _reuse, "faster worker": _faster, "overlap": _overlap, "none": _none}

__all__ = ["Span", "Step", "explain_gain", "timeline"]
