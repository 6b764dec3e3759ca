"""The requests under way, and the last ones as timelines with the gain that applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kakeya_ops.dashboard import words
from kakeya_ops.dashboard.elements import Box, Rows, Section, Table, Words
from kakeya_ops.dashboard.reading import Reading, Value

_GAINS = {"reuse": "good", "faster worker": "good", "overlap": "good", "none": "plain"}
_LEAST_WIDTH = 0.4
"""Percent of a timeline below which nothing can be seen."""


class LiveRequests:
    """The section of the requests under way."""

    def __init__(self) -> None:
        section = Section("live", "Under way")
        self._note = section.note
        with section.body:
            headings = ("Request", "Stage", "Progress", "Tokens", "Elapsed")
            table = Table("Requests under way", headings, "live")
            self._idle = Words("p", "No request is under way.", "idle")
        self._rows = Rows(table.body, _LiveRow)
        self._table = table

    def show(self, reading: Reading) -> None:
        """Show the live requests of `reading`."""
        self._rows.show(reading.live)
        self._idle.set_visibility(not reading.live)
        self._note.say(words.count(len(reading.live)) if reading.live else "")


class _LiveRow:
    def __init__(self) -> None:
        self._row = Box("tr")
        with self._row:
            self._id = Words("th", "", "first id", scope="row")
            self._stage = Words("td")
            with Box("td"):
                self._bar = Box("div", "bar", role="progressbar", aria_valuemin="0", aria_valuemax="100")
                with self._bar:
                    self._fill = Box("span", "part")
            self._tokens, self._elapsed = Words("td"), Words("td")

    def show(self, value: dict[str, Any]) -> None:
        self._id.say(words.plain(value["request_id"]))
        self._stage.say(_stage(value))
        done, tokens = _progress(value)
        self._fill.style(f"width:{done:.1f}%")
        self._bar.props["aria-valuenow"] = f"{done:.0f}"
        self._bar.props["aria-label"] = f"prefill of {words.plain(value['request_id'])[:8]}"
        self._tokens.say(tokens)
        self._elapsed.say(f"{value['seconds']:.1f} s")

    def delete(self) -> None:
        self._row.delete()


def _stage(live: Value) -> str:
    return f"{live['stage']} on {words.plain(live['node'])}" if live["node"] else str(live["stage"])


def _progress(live: Value) -> tuple[float, str]:
    """How much of its prompt a request has behind it in percent, and in words where it is."""
    if live["stage"] == "decode":
        return 100.0, f"{words.count(live['decoded_tokens'])} decoded after {words.count(live['prompt_tokens'])}"
    whole = live["total_tokens"] or live["prompt_tokens"]
    return 100 * live["done_tokens"] / whole if whole else 0.0, (
        f"{words.count(live['done_tokens'])} of {words.count(whole)}"
    )


class LastRequests:
    """The section of the last requests."""

    def __init__(self) -> None:
        section = Section("requests", "Last requests")
        with section.body:
            _step_legend()
            self._list = Box("ol", "requests", aria_label="Last requests, newest first")
            self._idle = Words("p", "No request has come to its first token yet.", "idle")
        self._rows = Rows(self._list, _RequestRow)

    def show(self, reading: Reading) -> None:
        """Show the last requests of `reading`."""
        self._rows.show([(reading.at, request) for request in reading.requests])
        self._idle.set_visibility(not reading.requests)


_STEPS = ("queue", "lookup", "compute", "transfer", "import", "suffix", "first token")
_OF_THE_HEAD = frozenset(_STEPS) - {"compute", "transfer"}


def _step_legend() -> None:
    with Box("ul", "legend steps", aria_hidden="true"):
        for step in _STEPS:
            with Box("li"):
                Box("span", f"swatch step-{_css(step)}")
                Words("span", step)


class _RequestRow:
    """One request; its inner part is made anew when another request takes its place."""

    def __init__(self) -> None:
        self._shown: object = None
        self._item = Box("li", "request")
        with self._item:
            with Box("div", "request-head"):
                self._id = Words("code", "", "id")
                self._gain = Words("span", "", "gain")
                self._figures = Words("span", "", "note")
                self._age = Words("span", "", "note age")
            self._sentence = Words("p", "", "sentence")
            self._lanes = Box("div", "lanes", aria_hidden="true")
            self._steps = Rows(Box("ol", "spans", aria_label="Steps"), _Step)

    def show(self, value: tuple[float, dict[str, Any]]) -> None:
        now, request = value
        self._age.say(words.ago(now - request["started_at"]))
        shown = (request["request_id"], request["outcome"])
        if shown == self._shown:
            return
        self._shown = shown
        self._id.say(words.plain(request["request_id"]))
        self._gain.say(_gain(request))
        self._gain.classes(replace=f"gain {_GAINS.get(request['gain'], 'plain')}")
        self._figures.say(_figures(request))
        self._sentence.say(words.plain(request["gain_sentence"]))
        spans = lay_out(request["timeline"])
        self._draw(spans)
        self._steps.show(spans)

    def _draw(self, spans: list[Span]) -> None:
        self._lanes.clear()
        with self._lanes:
            for node in dict.fromkeys(span.lane for span in spans):
                with Box("div", "lane"):
                    Words("span", node, "lane-name")
                    with Box("div", "track"):
                        for span in (span for span in spans if span.lane == node):
                            Box("span", f"part step-{_css(span.step)}").style(
                                f"left:{span.left:.2f}%;width:{span.width:.2f}%"
                            )

    def delete(self) -> None:
        self._item.delete()


@dataclass(frozen=True)
class Span:
    """One step of a timeline: where it is drawn, in percent, and in words."""

    step: str
    lane: str
    left: float
    width: float
    took: str
    detail: str


def lay_out(timeline: Sequence[Value]) -> list[Span]:
    """The steps of `timeline` beneath each other on one scale, each wide enough to be seen."""
    whole = max([1e-9, *(one["began_seconds"] + one["seconds"] for one in timeline)])
    return [_span(one, 100 / whole) for one in timeline]


def _span(step: Value, scale: float) -> Span:
    left = min(step["began_seconds"] * scale, 100 - _LEAST_WIDTH)
    width = min(max(step["seconds"] * scale, _LEAST_WIDTH), 100 - left)
    lane = words.plain(step["node"]) + (" → head" if step["step"] == "transfer" else "")
    return Span(step["step"], lane, left, width, words.duration(step["seconds"]), words.plain(step["detail"]))


class _Step:
    def __init__(self) -> None:
        self._item = Box("li")
        with self._item:
            self._name, self._took = Words("span", "", "name"), Words("span", "", "figure")
            self._detail = Words("span", "", "detail")

    def show(self, value: Span) -> None:
        self._name.say(value.step)
        self._took.say(value.took)
        self._detail.say(value.detail if value.step in _OF_THE_HEAD else f"{value.lane}: {value.detail}")

    def delete(self) -> None:
        self._item.delete()


def _gain(request: Value) -> str:
    return "no gain" if request["gain"] == "none" else words.plain(request["gain"])


def _figures(request: Value) -> str:
    outcome = request["outcome"] or {}
    first = request["times"].get("first_token")
    parts = [
        f"{words.count(request['prompt_tokens'])} prompt tokens, {words.count(request['cached_tokens'])} cached",
        f"first token after {words.duration(first)}",
        f"{words.count(outcome['decoded_tokens'])} decoded, {words.plain(outcome['finish'])}" if outcome else "",
        f"fell back: {words.plain(request['fallback'])}" if request["fallback"] else "",
    ]
    return " · ".join(part for part in parts if part)


def _css(step: str) -> str:
    return step.replace(" ", "-") if step in _STEPS else "other"


__all__ = ["LastRequests", "LiveRequests", "Span", "lay_out"]
