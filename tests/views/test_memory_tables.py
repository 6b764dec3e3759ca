"""Verdicts on a terminal: each term, each inequality, and what would help."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from kakeya_ops.errors import ConnectFailed, FootprintUnknown
from kakeya_ops.inventory import load_inventory
from kakeya_ops.memory.assessment import Assessment, Surroundings, assess
from kakeya_ops.memory.facts import pinned
from kakeya_ops.memory.host import HostMemory
from kakeya_ops.memory.observed import Comparison
from kakeya_ops.memory.shape import ModelShape
from kakeya_ops.views.memory_tables import assessment_view, failure_line, headline, matrix_table
from memory.machines import GIB, linux, mac
from memory.public_models import QWEN3_30B, sized
from test_layout import ROOT

INVENTORY = load_inventory(ROOT / "inventory.yaml")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    shape = sized(Path(tmp_path_factory.mktemp("qwen")), QWEN3_30B, 17.18e9)
    return dataclasses.replace(shape, notes=("num_key_value_heads was missing",))


def shown(*renderables: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=220, no_color=True)
    for renderable in renderables:
        console.print(renderable, markup=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def head_on(host: HostMemory, model: ModelShape) -> Assessment:
    return assess(INVENTORY, INVENTORY.host("head"), model, Surroundings(host))


def test_a_refusal_shows_terms_inequalities_and_ways_out(model: ModelShape) -> None:
    text = shown(*assessment_view(head_on(pinned(24), model)))
    for words in (
        "head as a head, 4 × 8192 tokens: does not fit: working set",
        "tensors that mlx-lm keeps, by their headers",
        "on the GPU",
        "single buffer   holds",
        "PINNED: memory_gb of the inventory",
        "note: num_key_value_heads was missing",
        "What would help, each by itself:",
        "role: cache",
    ):
        assert words in text, text


def test_a_command_stands_with_its_risk(model: ModelShape) -> None:
    text = shown(*assessment_view(head_on(mac(36, 20.0), model)))
    assert "sudo sysctl iogpu.wired_limit_mb=" in text
    assert "risk: " in text


def test_what_was_read_of_the_host_is_told(model: ModelShape) -> None:
    host = mac(64, 48.0, swap_used_bytes=GIB, compressor_bytes=2 * GIB, version="15.5", build="24F74")
    text = shown(*assessment_view(head_on(host, model)))
    for words in ("free at once", "1.0 GiB swapped out", "2.0 GiB compressed", "macOS 15.5 24F74"):
        assert words in text
    assert "What would help" not in text
    assert "not applicable" in shown(*assessment_view(head_on(linux(64), model)))


def test_forecast_stands_beside_observed_and_is_warned_of(model: ModelShape) -> None:
    comparisons = (Comparison("MLX peak", 10 * GIB, 20 * GIB), Comparison("process footprint", GIB, GIB))
    text = shown(*assessment_view(head_on(pinned(64), model), comparisons))
    assert "-50 %" in text
    assert "+0 %" in text
    assert text.count("warning: ") == 1


def test_where_nothing_helps_that_is_said(model: ModelShape) -> None:
    assessment = head_on(mac(4, 2.0), model)
    assert assessment.changes == ()
    assert "No single change makes it fit" in shown(*assessment_view(assessment))


def test_unknown_names_the_missing_fact(model: ModelShape) -> None:
    error = FootprintUnknown("m", "its model_type 'x\x1b[2J'")
    unknown = assess(INVENTORY, INVENTORY.host("head"), error, Surroundings(pinned(24)))
    text = shown(*assessment_view(unknown))
    assert "unknown: its model_type" in text
    assert "\x1b[2J" not in text
    assert "cannot connect: no route" in shown(failure_line("allens", ConnectFailed("allens", "no route")))


def test_hosts_by_roles_mark_each_host_s_own(model: ModelShape) -> None:
    table = matrix_table({"mini": {"head": "does not fit", "worker": "tight", "cache": "fits"}}, {"mini": "worker"})
    text = shown(table)
    assert "does not fit" in text
    assert "tight *" in text
    assert "fits *" not in text
    assert "does not fit" in shown(headline(head_on(pinned(24), model)))
