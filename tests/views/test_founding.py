"""A proposed fleet as a person reads it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from founding.macs import CHOICES, newcomer
from kakeya_ops.founding.discovery import Announced
from kakeya_ops.founding.lines import Line
from kakeya_ops.founding.proposal import propose
from kakeya_ops.views.founding import announced_table, next_steps, proposal_view


def shown(*parts: Any, width: int = 160) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, no_color=True)
    for part in parts:
        console.print(part)
    return " ".join(file.getvalue().split())


def test_roles_reasons_and_what_lines_are_worth_are_there() -> None:
    proposal = propose([newcomer("head"), newcomer("allens")], CHOICES, None)
    lines = {"allens": [Line("169.254.10.2", 0.0005, 2.0**30), Line("192.0.2.10", None, None)]}
    text = shown(proposal_view(replace(proposal, lines=lines)))
    assert "thunderbolt 169.254.10.2: RTT 500 µs, 1.0 GiB/s" in text
    assert "lan 192.0.2.10: does not answer" in text
    assert "there is no model here to judge by" in text


def test_what_comes_next_can_be_pasted() -> None:
    text = shown(next_steps(Path("inventory.yaml"), "~/.kakeya/fleet.key", made=True))
    assert "made the fleet key ~/.kakeya/fleet.key" in text
    assert "kakeya deploy all kakeya verify remote-prefill kakeya status" in text


def test_names_from_the_network_cannot_write_to_the_terminal() -> None:
    text = shown(announced_table([Announced("evil\x1b[31m", "evil.local", ("192.0.2.9",), "worker")]))
    assert "\x1b" not in text
    assert "--host evil.local" in text
