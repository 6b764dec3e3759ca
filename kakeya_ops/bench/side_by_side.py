"""The whole comparison with ``mlx_lm.server``: once as it is by default, and once with short prefill steps."""

from __future__ import annotations

from pathlib import Path

from kakeya_ops.bench.compare import GAP_TOKENS, Comparing
from kakeya_ops.bench.mlx_lm_server import check_room, mlx_lm_server
from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.streams import StreamServer

DEFAULTS = "mlx-lm by default"
CHUNKED = "mlx-lm with --prefill-step-size 128"
_CHUNKED_OPTIONS = ("--prefill-step-size", "128")


def compare_with_mlx_lm(plan: BenchPlan, model: Path, comparing: Comparing, deadline: float) -> None:
    """Fill `comparing` until `deadline` by `time.monotonic`; what there is no time for is among its notes.

    The servers run one after the other, so that no more than one copy of the model is in memory beside the head's.
    Raises `InputError`, `RefusedError` or `EnvironmentFault` where mlx-lm cannot be run here.
    """
    check_room(model)
    with mlx_lm_server(model) as theirs:
        comparing.warm_up(theirs, plan.lengths[-1])
        if comparing.in_time(deadline):
            comparing.first_tokens(theirs, plan.lengths[-1], plan.rounds)
        _gaps(comparing, theirs, plan.rounds, deadline, of=DEFAULTS)
    with mlx_lm_server(model, _CHUNKED_OPTIONS) as theirs:
        _gaps(comparing, theirs, plan.rounds, deadline, of=CHUNKED)


def _gaps(comparing: Comparing, theirs: StreamServer, rounds: int, deadline: float, *, of: str) -> None:
    for tokens in GAP_TOKENS:
        if comparing.in_time(deadline):
            comparing.gaps(theirs, tokens, rounds, of=of)


__all__ = ["CHUNKED", "DEFAULTS", "compare_with_mlx_lm"]
