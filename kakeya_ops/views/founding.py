"""A proposed fleet, what was measured for it, and what to type next."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich import box
from rich.table import Column, Table
from rich.text import Text

from kakeya_ops.founding.discovery import Announced
from kakeya_ops.founding.lines import Line
from kakeya_ops.founding.proposal import Member, Proposal
from kakeya_ops.units import render_rate, render_seconds
from kakeya_ops.views.printer import visible


def proposal_view(proposal: Proposal) -> Table:
    """A host a row: its role and why, and its addresses with what they are worth."""
    table = _table("host", "role", "because", "addresses")
    for member in proposal.members:
        lines = {line.address: line for line in proposal.lines.get(member.newcomer.name, ())}
        table.add_row(visible(member.newcomer.name), member.role, visible(member.reason), _addresses(member, lines))
    return table


def _addresses(member: Member, lines: dict[str, Line]) -> str:
    shown = []
    for endpoint in member.endpoints:
        line = lines.get(str(endpoint["address"]))
        worth = f": {_worth(line)}" if line else ""
        shown.append(visible(f"{endpoint['network']} {endpoint['address']}{worth}"))
    return "\n".join(shown) or "none was found"


def _worth(line: Line) -> str:
    if line.rtt_seconds is None:
        return "does not answer"
    rate = render_rate(line.bytes_per_second) if line.bytes_per_second else "rate not measured"
    return f"RTT {render_seconds(line.rtt_seconds)}, {rate}"


def next_steps(output: Path, key_file: str, *, made: bool) -> Text:
    """What was written, and the commands that follow."""
    key = f"made the fleet key {key_file}" if made else f"the fleet key {key_file} was there already"
    option = "" if output == Path("inventory.yaml") else f" --inventory {output}"
    commands = ("doctor", "memory", "deploy all", "verify remote-prefill", "status")
    lines = [f"wrote {visible(str(output))}; {visible(key)}", "next:"]
    return Text("\n".join([*lines, *(f"  kakeya{option} {command}" for command in commands)]))


def announced_table(found: Iterable[Announced]) -> Table:
    """The Macs that were heard, with what to say to ``kakeya init``."""
    table = _table("name", "address", "node", "say")
    for one in found:
        where = ", ".join(one.addresses)
        table.add_row(visible(one.name), visible(where), visible(one.role or "-"), visible(f"--host {one.server}"))
    return table


def _table(*headings: str) -> Table:
    """On a narrow terminal addresses go on in the next line: half of one is of no use."""
    return Table(*(Column(heading, overflow="fold") for heading in headings), box=box.SIMPLE_HEAD)


__all__ = ["announced_table", "next_steps", "proposal_view"]
