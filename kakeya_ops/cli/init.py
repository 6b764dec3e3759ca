"""``kakeya init``: an inventory and a fleet key, from a few names."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kakeya_ops.cli.context import AppContext, app_context
from kakeya_ops.errors import InputError

if TYPE_CHECKING:
    from kakeya_ops.founding import Choices, Invitation
    from kakeya_ops.remote.runner import Runner


_Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", help="Another Mac, NAME=SSH or an ssh target; may be repeated.", metavar="[NAME=]SSH"),
]
_KeyFile = Annotated[str, typer.Option(help="Where the fleet key is to be, on every host.", metavar="FILE")]
_Output = Annotated[Path, typer.Option("--output", "-o", help="The inventory to write.", metavar="FILE")]


def init(
    ctx: typer.Context,
    hosts: _Hosts = None,
    head: Annotated[
        str | None, typer.Option(help="The Mac that answers; default: this one.", metavar="[NAME=]SSH")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model directory, at the same place on every Mac.", metavar="DIR")
    ] = None,
    fleet: Annotated[str, typer.Option(help="Name of the fleet.", metavar="NAME")] = "home",
    pool_gb: Annotated[float, typer.Option(min=0.01, help="Memory for each node's pool, in GiB.", metavar="N")] = 4.0,
    key_file: _KeyFile = "~/.kakeya/fleet.key",
    output: _Output = Path("inventory.yaml"),
    python: Annotated[
        str | None,
        typer.Option(help="An interpreter on every host; default: deploy looks for one there.", metavar="PATH"),
    ] = None,
    api_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the head's API and dashboard.", metavar="N")
    ] = 8080,
    peer_ports: Annotated[
        tuple[int, int],
        typer.Option(help="Ports for other nodes: the head's, and that of every other host.", metavar="HEAD OTHERS"),
    ] = (51051, 53051),
    measure: Annotated[bool, typer.Option(help="Measure the lines from the head to the others.")] = True,
    discover: Annotated[
        bool, typer.Option("--discover", help="Only list the Macs that announce themselves on the local network.")
    ] = False,
) -> None:
    """Write an inventory from a few names: reads each Mac over SSH, proposes roles by memory, measures, makes the key.

    Nothing is overwritten, and nothing is changed on any Mac. What is not given is asked for on a terminal.

    Examples:
        kakeya init --discover
        kakeya init --host allens.local --model ~/kakeya-models/MODEL
        kakeya init --head mini=mini.local --host allens=me@allens.local --model ~/models/MODEL -o two-macs.yaml
    """
    context = app_context(ctx)
    if discover:
        _list_announced(context)
    else:
        options = Options(
            tuple(hosts or ()), head, model, fleet, pool_gb, key_file, python, (api_port, *peer_ports), output, measure
        )
        _found(context, options)


@dataclass(frozen=True)
class Options:
    """The options of ``kakeya init``."""

    hosts: tuple[str, ...]
    head: str | None
    model: str | None
    fleet: str
    pool_gb: float
    key_file: str
    python: str | None
    ports: tuple[int, int, int]
    output: Path
    measure: bool


def _found(context: AppContext, options: Options) -> None:
    """Read, propose, write, show."""
    from kakeya_ops.founding import Founding, make_key, write_inventory
    from kakeya_ops.views.founding import next_steps, proposal_view

    output = options.output
    if output.exists():
        raise InputError(f"{output} exists, and is never overwritten", hint="name another file with --output")
    invitations, choices = _choose(options)
    names = ", ".join(invitation.name for invitation in invitations)
    with context.printer.progress(f"reading {names}"):
        founding = Founding(_open, context.printer.warn)
        proposal = founding.propose(invitations, choices, measure=options.measure)
    made = make_key(options.key_file, options.fleet)
    write_inventory(output, proposal.render())
    document = proposal.to_json() | {"inventory": str(output), "key_file": options.key_file, "key_made": made}
    context.printer.show(document, proposal_view(proposal), next_steps(output, options.key_file, made=made))


def _choose(options: Options) -> tuple[tuple[Invitation, ...], Choices]:
    """Who is invited, the head first, and what was chosen; what was not said is asked for."""
    from kakeya_ops.founding import Choices, Invitation, Ports, make_label

    model = options.model or _ask("The model directory", "--model DIR")
    others = options.hosts or _ask("The other Macs, as ssh knows them (with spaces between)", "--host SSH").split()
    head = Invitation.parse(options.head or f"head={socket.gethostname()}")
    choices = Choices(
        fleet=make_label(options.fleet),
        model_path=_portable(model),
        head=head.name,
        pool_gb=options.pool_gb,
        key_file=options.key_file,
        python=options.python,
        ports=Ports(*options.ports),
    )
    return (head, *map(Invitation.parse, others)), choices


def _open(invitation: Invitation) -> Runner:
    """Connect as the user's ssh configuration says."""
    from kakeya_ops.inventory import parse_inventory
    from kakeya_ops.remote.connect import connect

    user, _, host = invitation.ssh.rpartition("@")
    return connect(parse_inventory(_stub(invitation.name, host, user), "a new host").host(invitation.name))


def _stub(name: str, host: str, user: str) -> bytes:
    """An inventory of nothing but how to reach one host: what `connect` asks of one."""
    import json

    ssh = {"host": host, **({"user": user} if user else {})}
    hosts = {name: {"role": "head", "ssh": ssh, "api": {"port": 8080}}}
    return json.dumps({"fleet": {"name": "new"}, "model": {"path": "~"}, "hosts": hosts}).encode()


def _portable(model: str) -> str:
    """The directory with ``~`` for the home folder, which is another one on each Mac."""
    path, home = str(Path(model).expanduser().absolute()), str(Path.home())
    return f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path


def _ask(what: str, option: str) -> str:
    if not sys.stdin.isatty():
        raise InputError(f"{what} is not given, and nobody can be asked here", hint=f"say {option}")
    return str(typer.prompt(what, err=True)).strip()


def _list_announced(context: AppContext) -> None:
    from dataclasses import asdict

    from kakeya_ops.founding.discovery import discover
    from kakeya_ops.views.founding import announced_table

    with context.printer.progress("listening for Macs"):
        found = discover()
    context.printer.show({"announced": [asdict(one) for one in found]}, announced_table(found))


__all__ = ["init"]
