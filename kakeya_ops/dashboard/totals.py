"""The totals: one tile a figure, and a table with every counter."""

from __future__ import annotations

from collections.abc import Mapping

from kakeya_ops.dashboard import words
from kakeya_ops.dashboard.elements import Box, Cells, Rows, Section, Table, Words, mark
from kakeya_ops.dashboard.reading import Reading, Value
from kakeya_ops.serving.counters import DESCRIPTIONS, CounterName

_SOURCES = (
    ("tokens_reused", "reused"),
    ("tokens_computed_remote", "computed by workers"),
    ("tokens_computed_local", "computed here"),
)


class Tile:
    """A figure with its name, and a line on what is behind it."""

    def __init__(self, name: str, label: str) -> None:
        self.box = Box("div", "tile")
        with self.box:
            Words("dt", label)
            self.value = Words("dd", words.UNKNOWN, "value", data_value=name)
            self.note = Words("dd", "", "note")

    def show(self, value: str, note: str, state: str = "") -> None:
        """Show the figure; a `state` of ``bad`` or ``good`` colours it."""
        self.value.say(value)
        self.note.say(note)
        mark(self.box, state)


class Totals:
    """The section."""

    def __init__(self) -> None:
        section = Section("totals", "Totals")
        self._note = section.note
        with section.body:
            with Box("dl", "tiles"):
                self._tiles = {name: Tile(name, label) for name, label in _TILES.items()}
            self._sources = _Sources()

    def show(self, reading: Reading) -> None:
        """Show the totals of `reading`."""
        for name, (value, note, state) in describe_totals(reading.summary).items():
            self._tiles[name].show(value, note, state)
        self._sources.show(reading.summary["tokens"])
        started = reading.nodes["head"].get("epoch")
        self._note.say(f"since the head started {words.ago(reading.at - started / 1e9)}" if started else "")


class _Sources:
    """Where the prompt tokens came from, as a bar and as its legend."""

    def __init__(self) -> None:
        with Box("div", "sources"):
            with Box("div", "bar", aria_hidden="true"):
                self._parts = [Box("span", f"part {name}") for name, _ in _SOURCES]
            with Box("ul", "legend", aria_label="Where the prompt tokens came from"):
                self._words = [_legend(name) for name, _ in _SOURCES]

    def show(self, tokens: Value) -> None:
        whole = tokens["prompt_tokens"]
        for part, text, (name, label) in zip(self._parts, self._words, _SOURCES, strict=True):
            part.style(f"width:{100 * tokens[name] / whole if whole else 0:.2f}%")
            text.say(f"{words.count(tokens[name])} {label}")


def _legend(name: str) -> Words:
    with Box("li"):
        Box("span", f"swatch {name}", aria_hidden="true")
        return Words("span", "", data_value=name)


_TILES = {
    "requests": "Requests",
    "prompt_tokens": "Prompt tokens",
    "reused_share": "Prompt tokens reused",
    "tokens_decoded": "Tokens decoded",
    "remote_jobs": "Remote jobs",
    "remote_hits": "Imports from pools",
    "bytes_received": "KV received",
    "fallbacks": "Fallbacks",
}

_Figure = tuple[str, str, str]


def describe_totals(summary: Value) -> dict[str, _Figure]:
    """The tiles by name: each a value, what is behind it, and ``bad`` where that is no good news."""
    counters, tokens, failures = summary["counters"], summary["tokens"], summary["failures_by_reason"]
    failed, fallbacks = counters["requests_failed"], counters["fallbacks"]
    why = words.reasons(failures) or words.count(failed)
    return {
        "requests": (
            words.count(counters["requests"]),
            f"failed: {why}" if failed else f"none failed, {words.count(summary['live'])} under way",
            "bad" if failed else "",
        ),
        "prompt_tokens": (
            words.count(tokens["prompt_tokens"]),
            f"{words.count(counters['local_hits'])} prompts found in the head's own pool",
            "",
        ),
        "reused_share": (
            words.share(tokens["tokens_reused"], tokens["prompt_tokens"]),
            f"{words.count(tokens['tokens_reused'])} not computed again",
            "",
        ),
        "tokens_decoded": (words.count(counters["tokens_decoded"]), _latency(summary["latency"]), ""),
        "remote_jobs": (
            words.count(counters["remote_jobs"]),
            f"{words.count(counters['remote_job_failures'])} failed",
            "bad" if counters["remote_job_failures"] else "",
        ),
        "remote_hits": (
            words.count(counters["remote_hits"]),
            f"{words.duration(counters['import_seconds'])} placing KV",
            "",
        ),
        "bytes_received": (words.size(counters["bytes_received"]), _transfer(counters), ""),
        "fallbacks": (
            words.count(fallbacks),
            words.reasons(summary["fallbacks_by_reason"]) or "the remote path has held",
            "bad" if fallbacks else "",
        ),
    }


def _latency(latency: Mapping[str, float | None]) -> str:
    between = latency["inter_token_seconds_p50"]
    return f"{words.duration(between)} apart in the last minute" if between is not None else "none in the last minute"


def _transfer(counters: Mapping[str, float]) -> str:
    seconds, published = counters["transfer_seconds"], words.size(counters["bytes_published"])
    received = f"in {words.duration(seconds)}" if seconds else "no transfer yet"
    return f"{received}, {published} published"


class Counters:
    """Every counter of the head, as one table."""

    def __init__(self) -> None:
        section = Section("counters", "All counters")
        with section.body, Box("details"):
            Words("summary", "Show what the head has counted since it started")
            table = Table("All counters of the head", ("Counter", "Total", "By worker", "What it counts"))
            self._rows = Rows(table.body, lambda: Cells(4))

    def show(self, reading: Reading) -> None:
        """Show the counters of `reading`."""
        self._rows.show(describe_counters(reading.summary))


def describe_counters(summary: Value) -> list[tuple[str, ...]]:
    """A row for every counter: its name, the total, that of each worker, and what it counts."""
    return [_counter_row(name, summary["counters"], summary["by_worker"]) for name in CounterName]


def _counter_row(name: CounterName, counters: Mapping[str, float], by_worker: Mapping[str, Value]) -> tuple[str, ...]:
    workers = {worker: found[name] for worker, found in sorted(by_worker.items()) if name in found}
    each = ", ".join(f"{words.plain(worker)} {_number(amount)}" for worker, amount in workers.items())
    return name.value, _number(counters[name]), each, DESCRIPTIONS[name]


def _number(value: float) -> str:
    return words.count(value) if value == int(value) else f"{value:,.3f}"


__all__ = ["Counters", "Tile", "Totals", "describe_counters", "describe_totals"]
