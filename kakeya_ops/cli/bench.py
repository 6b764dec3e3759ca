"""``kakeya bench``: what the running fleet does, in numbers."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kakeya_ops.cli.asking_the_head import ApiKeyFileOption, UrlOption, fleet_keys, head_url, read_api_key
from kakeya_ops.cli.completing import offer_bench_targets, offer_workers
from kakeya_ops.cli.context import app_context
from kakeya_ops.errors import ExitCode
from kakeya_ops.settings import expand_here

_Lengths = Annotated[str, typer.Option(help="About how many tokens the prompts have.", metavar="N,N,…")]
_Rounds = Annotated[int, typer.Option(min=1, max=1000, help="How often each is measured.", metavar="N")]
_Seconds = Annotated[float, typer.Option(min=1, help="Begin nothing new after so long.", metavar="SECONDS")]
_Worker = Annotated[
    str | None, typer.Option(help="Measure only this worker.", metavar="NODE", autocompletion=offer_workers)
]
_Expect = Annotated[
    list[str] | None,
    typer.Option(
        help="A target that must be met: its name, or NAME<=NUMBER. May be repeated.",
        metavar="TARGET",
        autocompletion=offer_bench_targets,
    ),
]
_LinkRate = Annotated[
    float | None, typer.Option(min=0.001, help="What the raw link carries, to judge transfers by.", metavar="MB/S")
]
_Compare = Annotated[
    Literal["mlx-lm"] | None, typer.Option(help="Run this server beside the head, on the head's machine, and compare.")
]


def bench(
    ctx: typer.Context,
    lengths: _Lengths = "256,1024,2048",
    rounds: _Rounds = 3,
    seconds: _Seconds = 600.0,
    worker: _Worker = None,
    expect: _Expect = None,
    link_rate: _LinkRate = None,
    compare: _Compare = None,
    url: UrlOption = None,
    api_key_file: ApiKeyFileOption = None,
) -> None:
    """Measure the fleet: prefill by prompt length on each node, hits, links, decode jitter, and from which prompt
    length on each worker helps.

    Exits with 0, with 1 if nothing could be measured or an expectation is not met, with 3 when the head cannot be
    reached.

    Examples:
        kakeya bench
        kakeya bench --lengths 512,4096 --rounds 5 --worker allens
        kakeya --json bench --expect 'hit<=0.02' --link-rate 1100
    """
    from kakeya_ops.bench.plan import BenchPlan, parse_lengths
    from kakeya_ops.bench.run import run_bench
    from kakeya_ops.bench.targets import parse_expectation
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.views.bench import bench_view

    context = app_context(ctx)
    inventory = load_inventory(find_inventory(context.inventory_path))
    plan = BenchPlan(
        url=head_url(inventory, url),
        fleet_keys=fleet_keys(inventory),
        lengths=parse_lengths(lengths),
        rounds=rounds,
        limit_seconds=seconds,
        worker=worker,
        api_key=read_api_key(api_key_file),
        link_bytes_per_second=link_rate * 1e6 if link_rate else None,
        compared_model=expand_here(inventory.model.path) if compare else None,
        expected=tuple(parse_expectation(text) for text in expect or ()),
    )
    with context.printer.progress(f"measuring {plan.url}") as tell:
        report = run_bench(plan, tell)
    context.printer.show(report.to_json(), *bench_view(report))
    raise typer.Exit(ExitCode.OK if report.passed else ExitCode.NO)


__all__ = ["bench"]
