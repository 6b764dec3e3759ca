"""What a node needs in memory, term by term, each with the formula and the figures that it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kakeya_ops.memory.rows import GROWTH_ROWS, batch_rows, largest_full_rows, largest_window_rows
from kakeya_ops.memory.scores import METAL, MlxRule, ScoreNeed, expert_bytes, score_need
from kakeya_ops.memory.shape import AttentionShape, LayerCache, ModelShape

Role = Literal["head", "worker", "cache"]
TermGroup = Literal["weights", "kv", "transient", "fixed", "pool", "buffers"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What a node is to do: `concurrency` conversations of `context_tokens` each, in its `role`.

    `block_tokens`, `sink` and `window` are the cache section of the inventory; a window of None keeps all rows.
    `step_tokens` is how many tokens a prefill computes at once: None means `block_tokens`, Kakeya's own grid.
    `stored_caches` are whole caches kept beside, as mlx_lm.server does and Kakeya, which has a pool, does not.
    """

    role: Role
    context_tokens: int
    concurrency: int = 1
    block_tokens: int = 64
    sink: int = 4
    window: int | None = None
    pool_bytes: int = 0
    step_tokens: int | None = None
    stored_caches: int = 0

    @property
    def step(self) -> int:
        """Tokens of one prefill chunk."""
        return self.block_tokens if self.step_tokens is None else self.step_tokens


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the need. `source` is its formula with configuration keys and values, for people to check.

    `on_gpu` says whether it counts against the GPU's working set, or against the machine's memory alone.
    """

    name: str
    nbytes: int
    source: str
    group: TermGroup
    on_gpu: bool


@dataclass(frozen=True)
class Footprint:
    """The whole need. `largest_buffer_bytes` is the largest single allocation, and `largest_buffer` what it is."""

    terms: tuple[Term, ...]
    largest_buffer_bytes: int
    largest_buffer: str

    @property
    def gpu_bytes(self) -> int:
        """What counts against the GPU's working set."""
        return sum(term.nbytes for term in self.terms if term.on_gpu)

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return sum(term.nbytes for term in self.terms)


INTERPRETER_BYTES = 300_000_000
"""Python, its libraries and a tokenizer, in the machine's memory: measured on Linux with small models, rounded up."""
SPARE_BUFFER_BYTES = 64 * 2**20
"""What a head keeps at most of memory that blocks came in, for the next ones: `kakeya_ops.peer.room`."""
CACHE_PEER_BYTES = 150_000_000
"""The same for a node without a model."""


def estimate(shape: ModelShape | None, load: Workload, rule: MlxRule = METAL) -> Footprint:
    """What a node needs for `load` with the model of `shape`; None is for a cache peer, which has no model.

    Never less for more context, concurrency or pool. `rule` is how the host's MLX computes attention.
    """
    if shape is None or load.role == "cache":
        terms = (_pool(load), Term("process", CACHE_PEER_BYTES, "Python and its libraries, rough", "fixed", False))
        return Footprint(terms, 0, "nothing on the GPU")
    moments = [_Reckoning(shape, load, rule, chunk, reached) for chunk, reached in _largest_chunks(load, rule)]
    largest_bytes, largest = max(buffer for moment in moments for buffer in moment.buffers())
    footprints = (Footprint(moment.terms(), largest_bytes, largest) for moment in moments)
    return max(footprints, key=lambda footprint: footprint.gpu_bytes)


def _largest_chunks(load: Workload, rule: MlxRule) -> list[tuple[int, int]]:
    """The last whole chunk and the rest after it, each with the tokens that it reaches: one of them is the worst.

    No chunk is taken for so short that another kernel would be chosen for it.
    """
    tokens = max(load.context_tokens, 1)
    whole, rest = divmod(tokens, load.step)
    chunks = [(load.step, whole * load.step)] if whole else []
    least = min(load.step, rule.vector_tokens + 1)
    return [*chunks, (max(rest, least), tokens)] if rest else chunks


def _pool(load: Workload) -> Term:
    source = f"pool_gb {load.pool_bytes / 2**30:g} GiB"
    if load.role != "cache":
        source += "; blocks that are computed here are MLX arrays, so they count on the GPU"
    return Term("pool", load.pool_bytes, source, "pool", load.role != "cache")


@dataclass(frozen=True)
class _Reckoning:
    """One estimate at the moment when a prompt's chunk of `chunk` tokens ends at its token `reached`."""

    shape: ModelShape
    load: Workload
    rule: MlxRule
    chunk: int
    reached: int

    def terms(self) -> tuple[Term, ...]:
        """Every term that is not 0."""
        return tuple(term for term in self._terms() if term.nbytes)

    def _terms(self) -> tuple[Term, ...]:
        shape = self.shape
        dropped = f"; {shape.dropped_bytes} B more in the files are not loaded" if shape.dropped_bytes else ""
        return (
            Term(
                "weights", shape.weights_bytes, f"tensors that mlx-lm keeps, by their headers{dropped}", "weights", True
            ),
            self._conversations(),
            self._waiting(),
            self._stored(),
            self._views(),
            self._transient(),
            Term("export", self._export_bytes(), self._export_source(), "buffers", True),
            self._received(),
            self._spare(),
            Term("MLX", self.rule.fixed_bytes, f"{self.rule.name}: {self.rule.evidence}", "fixed", True),
            Term("process", INTERPRETER_BYTES, "Python, its libraries and the tokenizer, rough", "fixed", False),
            _pool(self.load),
        )

    def _conversations(self) -> Term:
        load = self.load
        prefilled = sum(self._leaf_bytes(leaf, self._prefill_rows(leaf)) for leaf in self.shape.layers)
        if load.role == "worker":
            source = f"one prompt of {load.context_tokens} tokens: {self._rows_source()}"
            return Term("KV", prefilled, source, "kv", True)
        decoded = sum(self._leaf_bytes(leaf, self._decode_rows(leaf)) for leaf in self.shape.layers)
        largest = sum(
            self._leaf_bytes(leaf, max(self._prefill_rows(leaf), self._decode_rows(leaf))) for leaf in self.shape.layers
        )
        source = (
            f"{load.concurrency} conversations of {load.context_tokens} tokens, one of them being prefilled:"
            f" {self._rows_source()}"
        )
        return Term("KV", (load.concurrency - 1) * decoded + largest, source, "kv", True)

    def _waiting(self) -> Term:
        """A worker's queue: a prompt that the pool knows waits with its prefix already put together."""
        waiting = self.load.concurrency - 1 if self.load.role == "worker" else 0
        prefix = sum(self._leaf_bytes(leaf, self._assembly_rows(leaf)) for leaf in self.shape.layers)
        source = f"{waiting} prompts that wait with a prefix out of the pool, {prefix} B each"
        return Term("waiting prefixes", waiting * prefix, source, "buffers", True)

    def _stored(self) -> Term:
        one = sum(self._leaf_bytes(leaf, self._decode_rows(leaf)) for leaf in self.shape.layers)
        count = self.load.stored_caches
        source = f"{count} caches kept for later prompts, and one being copied, {one} B each"
        return Term("stored caches", (count + 1) * one if count else 0, source, "kv", True)

    def _views(self) -> Term:
        nbytes = self.chunk * sum(leaf.view_row_bytes for leaf in self.shape.layers)
        source = f"states that are views of what was computed for the last {self.chunk} tokens"
        return Term("state views", nbytes, source, "transient", True)

    def _transient(self) -> Term:
        """The largest of what is needed for moments: these needs follow one another, layer by layer."""
        needs = [
            *self._score_needs(),
            (self._growth_bytes(), "the largest layer's cache while it is grown, old and new"),
        ]
        if self.shape.experts is not None:
            block = self.shape.experts
            nbytes = expert_bytes(block, self.chunk, self.shape.element_bytes)
            widths = f"(3 × {block.hidden} + 2 × {block.intermediate})"
            needs.append((nbytes, f"experts: {self.chunk} tokens × top {block.top_k} × {widths} × element"))
        if self.load.role == "head":
            needs.append((self._joining_bytes(), "a conversation that joins the others, copied into their batch"))
        nbytes, source = max(needs)
        return Term("prefill step", nbytes, source, "transient", True)

    def _score_needs(self) -> list[tuple[int, str]]:
        beside = self._growth_bytes() if self.rule.grows_beside_scores else 0
        return [(need.nbytes + beside, need.source) for need in map(self._score_need, self.shape.attention)]

    def _score_need(self, attention: AttentionShape) -> ScoreNeed:
        return score_need(attention, self.chunk, self._keys(attention), self.shape.element_bytes, self.rule)

    def _keys(self, attention: AttentionShape) -> int:
        """The keys that the chunk looks at."""
        window = attention.window if attention.window is not None else self._kept
        return self.reached if window is None else largest_window_rows(self.reached, window, self.chunk)

    def _growth_bytes(self) -> int:
        return max((self._leaf_bytes(leaf, self._prefill_rows(leaf)) for leaf in self.shape.layers), default=0)

    def _joining_bytes(self) -> int:
        """First the newcomer's cache beside its copy, but for layers that keep every row: these are not copied. Later
        one layer of the old batch beside the new one.
        """
        copied = [leaf for leaf in self.shape.layers if leaf.kind != "full" or self._kept is not None]
        alone = sum(self._leaf_bytes(leaf, self._prefill_rows(leaf)) for leaf in copied)
        layer = max((self._leaf_bytes(leaf, self._decode_rows(leaf)) for leaf in self.shape.layers), default=0)
        return max(alone, 2 * self.load.concurrency * layer)

    def _export_bytes(self) -> int:
        """One block, cut out of each layer's cache and then put together: two copies of it."""
        rows = sum(leaf.row_bytes for leaf in self.shape.layers) * self.load.block_tokens
        return 2 * (rows + sum(leaf.state_bytes for leaf in self.shape.layers))

    def _export_source(self) -> str:
        return f"a block of {self.load.block_tokens} tokens, cut out of the cache and put together: two copies"

    def _received(self) -> Term:
        """Blocks on their way into conversations: held until the prompt is complete, even where the pool drops them."""
        load = self.load
        prefix = sum(self._leaf_bytes(leaf, self._assembly_rows(leaf)) for leaf in self.shape.layers)
        beyond = max(0, load.concurrency * prefix - load.pool_bytes) if load.role == "head" else 0
        source = (
            f"blocks received for {load.concurrency} prompts of {prefix} B, as far as the pool has no room for them"
        )
        return Term("received blocks", beyond, source, "buffers", False)

    def _spare(self) -> Term:
        nbytes = SPARE_BUFFER_BYTES if self.load.role == "head" else 0
        return Term("spare buffers", nbytes, "memory that blocks came in, kept for the next ones", "buffers", False)

    def buffers(self) -> list[tuple[int, str]]:
        """The largest single allocations, each with what it is."""
        scores = [(need.buffer_bytes, need.source) for need in map(self._score_need, self.shape.attention)]
        sequences = self.load.concurrency if self.load.role == "head" else 1
        rows = [
            (max(sequences * self._decode_rows(leaf), self._prefill_rows(leaf)) * leaf.array_row_bytes, leaf)
            for leaf in self.shape.layers
        ]
        caches = [(nbytes, f"keys or values of layer {leaf.layer} ({leaf.about})") for nbytes, leaf in rows]
        return [(self.shape.largest_tensor_bytes, self.shape.largest_tensor or "a tensor"), *scores, *caches]

    @property
    def _kept(self) -> int | None:
        """Rows that a full layer keeps under the inventory's sink and window; None is all of them."""
        return None if self.load.window is None else self.load.sink + self.load.window

    def _window(self, leaf: LayerCache) -> int | None:
        return leaf.window if leaf.kind == "window" else self._kept if leaf.kind == "full" else None

    def _prefill_rows(self, leaf: LayerCache) -> int:
        step, window = self.load.step, self._window(leaf)
        if window is not None:
            return largest_window_rows(self.reached, window, self.chunk)
        rows = largest_full_rows(self.reached, step)
        if leaf.kind == "chunked" and leaf.window is not None:
            return min(rows, largest_full_rows(leaf.window + step, step) + GROWTH_ROWS)
        return rows

    def _decode_rows(self, leaf: LayerCache) -> int:
        window = self._window(leaf)
        rows = batch_rows(self.load.context_tokens)
        if leaf.kind == "chunked":
            return self._prefill_rows(leaf)
        return rows if window is None else min(rows, window)

    def _assembly_rows(self, leaf: LayerCache) -> int:
        window, tokens = self._window(leaf), self.load.context_tokens
        return largest_full_rows(tokens + 1, self.load.step) if window is None else min(tokens, window)

    def _leaf_bytes(self, leaf: LayerCache, rows: int) -> int:
        return leaf.state_bytes if leaf.kind == "state" else rows * leaf.row_bytes

    def _rows_source(self) -> str:
        """Each different kind of layer once, with how many there are."""
        counts: dict[str, int] = {}
        for leaf in self.shape.layers:
            rows = self._prefill_rows(leaf) if self.load.role == "worker" else self._decode_rows(leaf)
            about = leaf.about if leaf.kind == "state" else f"{leaf.about} × {rows} rows"
            counts[about] = counts.get(about, 0) + 1
        return " + ".join(f"{count} layers × ({about})" for about, count in counts.items())


__all__ = [
    "CACHE_PEER_BYTES",
    "INTERPRETER_BYTES",
    "SPARE_BUFFER_BYTES",
    "Footprint",
    "Role",
    "Term",
    "TermGroup",
    "Workload",
    "estimate",
]
