"""``kakeya memory``: whether the model fits, before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kakeya_ops.cli.completing import offer_roles, offer_targets
from kakeya_ops.cli.context import app_context
from kakeya_ops.errors import InputError
from kakeya_ops.spelling import did_you_mean

_ROLES = ("head", "worker", "cache")


def memory(
    ctx: typer.Context,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Hosts or groups of the inventory; default: all, as a table of hosts by roles.",
            metavar="HOST",
            show_default=False,
            autocompletion=offer_targets,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Model directory on this machine; default: the inventory's, here or on a host that has it.",
            metavar="DIR",
        ),
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a conversation; default: model_serving.context.", metavar="N")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Conversations at once; default: model_serving.concurrency.", metavar="N")
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            help="head, worker or cache; default: each host's own.", metavar="ROLE", autocompletion=offer_roles
        ),
    ] = None,
) -> None:
    """Say whether the model fits each host: every term with its source, the verdict, and what would make it fit.

    Exits with 0 where it fits (also tightly), 1 where it does not fit a host, 3 where that is not known: a fact is
    missing, or a host cannot be reached and has no memory_gb in the inventory.

    Examples:
        kakeya memory
        kakeya memory allens --role cache
        kakeya memory workers --context 16384 --concurrency 2
    """
    from kakeya_ops.cli.assessing import MemoryOptions, run_memory
    from kakeya_ops.memory.demand import Overrides

    if role is not None and role not in _ROLES:
        raise InputError(
            f"there is no role {role!r}{did_you_mean(role, _ROLES)}", hint=f"roles are: {', '.join(_ROLES)}"
        )
    overrides = Overrides(role, context, concurrency)  # type: ignore[arg-type]
    run_memory(app_context(ctx), MemoryOptions(tuple(hosts or ()), model, overrides))


__all__ = ["memory"]
