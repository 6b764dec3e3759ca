"""A head's values as nobody should meet them: names and messages that would like to be HTML, scripts or templates."""

from __future__ import annotations

import sys
import time
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from kakeya_ops.dashboard.mount import dashboard
from kakeya_ops.openai_api.settings import ApiSettings
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.server import Server, Site, bind

MARKUP = '<img src=x onerror="window.taken=1"><script>window.taken=1</script>'
TEMPLATE = "{{constructor.constructor('window.taken=1')()}} ${window.taken=1} `"
SCRIPTED = ":onerror javascript:window.taken=1"
TURNED = "evil\u202eemas\nsecond line\x1b[31m"
_GIB = 1024**3


class HostileHead:
    """`kakeya_ops.dashboard.reading.Observed`: a busy fleet of four whose every text is hostile."""

    def __init__(self) -> None:
        self.began = time.time() - 4000

    def summary(self) -> dict[str, Any]:
        counters: dict[str, float] = {name.value: 0 for name in CounterName}
        counters |= {
            "requests": 1204,
            "requests_failed": 7,
            "tokens_decoded": 88_412,
            "remote_jobs": 311,
            "remote_job_failures": 2,
            "remote_hits": 96,
            "local_hits": 402,
            "fallbacks": 3,
            "bytes_received": 41.7 * _GIB,
            "bytes_published": 3.2 * _GIB,
            "transfer_seconds": 48.25,
            "import_seconds": 9.5,
        }
        return {
            "nodes": 4,
            "reachable": 3,
            "workers": 3,
            "caches": 1,
            "counters": counters,
            "fallbacks_by_reason": {"timeout": 2, MARKUP: 1},
            "failures_by_reason": {"busy": 5, "engine_dead": 2},
            "by_worker": {MARKUP: {"remote_jobs": 211}, "allens": {"remote_jobs": 100}},
            "tokens": {
                "prompt_tokens": 2_804_113,
                "tokens_reused": 1_640_022,
                "tokens_computed_remote": 902_411,
                "tokens_computed_local": 261_680,
                "reused_share": 0.58,
            },
            "latency": {"inter_token_seconds_p50": 0.0214},
            "live": 2,
        }

    def nodes(self, tenant: str) -> dict[str, Any]:
        return {
            "head": _node("mini", "head", pool=3.1) | {"model": MARKUP, "policy": "measured", "tenant": tenant},
            "nodes": [
                _node("allens", "worker", pool=2.2),
                _node(MARKUP, "worker", pool=0.4, reason=TEMPLATE),
                _node(SCRIPTED, "cache", pool=7.9)
                | {"identity_difference": {"field": TURNED, "ours": 1, "theirs": MARKUP}},
                {"node": TURNED, "role": "worker", "healthy": False, "pool": None, "load": None, "reason": None},
            ],
        }

    def topology(self) -> dict[str, Any]:
        names = {"allens": "usable", MARKUP: "failing", SCRIPTED: "different cache identity", TURNED: "unreachable"}
        return {
            "head": "mini",
            "nodes": [{"node": name, "state": state} for name, state in names.items()],
            "links": [
                _link("allens", "thunderbolt", 0.00052, 2.1 * _GIB),
                _link(MARKUP, "lan", 0.0021, 98e6),
                _link(SCRIPTED, TEMPLATE, None, None),
                _link(TURNED, "lan", None, None) | {"up": False, "error": f"connection refused {MARKUP}"},
            ],
        }

    def live(self, tenant: str) -> list[dict[str, Any]]:
        shared = {"prompt_tokens": 12_000, "total_tokens": 11_968, "decoded_tokens": 0, "first_token_seconds": None}
        return [
            shared
            | {
                "request_id": "5e" * 16,
                "stage": "remote prefill",
                "node": "allens",
                "done_tokens": 7040,
                "seconds": 4.21,
            },
            shared
            | {
                "request_id": "a1" * 16,
                "stage": "decode",
                "node": None,
                "done_tokens": 0,
                "seconds": 9.8,
                "decoded_tokens": 212,
            },
        ]

    def requests(self, tenant: str, count: int = 50) -> list[dict[str, Any]]:
        return [_request(number, time.time()) for number in range(min(count, 4))]

    def series(self, count: int = 900) -> dict[str, Any]:
        wave = [round(400 + 300 * ((step * 37) % 50) / 50, 1) for step in range(240)]
        unknown: list[float | None] = [None] * 60
        values = {
            "prefill_local_tokens_per_second": [value / 9 for value in wave],
            "prefill_remote_tokens_per_second": wave,
            "decode_tokens_per_second": [40 + value / 40 for value in wave],
        }
        for rank, factor in ((50, 1.0), (95, 1.9), (99, 2.4)):
            values[f"first_token_seconds_p{rank}"] = unknown + [factor * value / 1000 for value in wave[60:]]
            values[f"inter_token_seconds_p{rank}"] = unknown + [factor * value / 20_000 for value in wave[60:]]
        nodes = {
            name: {
                "pool_used_bytes": [(0.4 + number + step / 200) * _GIB for step in range(240)],
                "footprint_bytes": [(12 + number) * _GIB for _ in range(240)],
            }
            for number, name in enumerate(("mini", "allens", MARKUP, SCRIPTED))
        }
        return {"at": [self.began + step for step in range(240)], "values": values, "nodes": nodes}


def _node(name: str, role: str, *, pool: float, reason: str | None = None) -> dict[str, Any]:
    return {
        "node": name,
        "role": role,
        "healthy": reason is None,
        "reason": reason,
        "epoch": int((time.time() - 4000) * 1e9),
        "prefill_tokens_per_second": 812.4 if role == "worker" else None,
        "load": {"queued": 1, "running": 2, "queue_seconds": 0.3},
        "memory": {"footprint_bytes": 15.9 * _GIB},
        "free_memory_bytes": 4.4 * _GIB,
        "version": TEMPLATE if role == "cache" else "0.1.0",
        "pool": {"used_bytes": pool * _GIB, "budget_bytes": 8 * _GIB},
        "identity_difference": None,
    }


def _link(to: str, network: str, rtt_seconds: float | None, bytes_per_second: float | None) -> dict[str, Any]:
    measured = {"rtt_seconds": rtt_seconds, "bytes_per_second": bytes_per_second}
    return {"from": "mini", "to": to, "up": True, "one_way": False, "network": network, "error": None, **measured}


def _request(number: int, now: float) -> dict[str, Any]:
    node = ("allens", MARKUP, TURNED, "allens")[number]
    steps = [
        ("queue", "mini", 0.0, 0.0002, "until the head took it up"),
        ("lookup", "mini", 0.0002, 0.004, "remote compute: policy prefer_remote"),
        ("transfer", node, 0.01, 2.9, "187 blocks, 402653184 bytes, 11968 tokens"),
        ("compute", node, 0.015, 2.7, MARKUP),
        ("import", "mini", 2.7, 0.21, "11968 tokens"),
        ("suffix", "mini", 2.91, 0.08, "31 tokens computed by the head"),
        ("first token", "mini", 2.99, 0.02, "the prompt's last token"),
    ]
    return {
        "request_id": f"{number:02x}" * 16,
        "started_at": now - 40 * (number + 1),
        "prompt_tokens": 12_000,
        "cached_tokens": 11_968,
        "decision": "remote_compute",
        "worker": node,
        "reason": MARKUP,
        "gain": ("faster worker", "reuse", "none", "overlap")[number],
        "gain_sentence": f"{MARKUP} computed 11968 of 12000 prompt tokens in 2.700 s (4433 tokens/s).",
        "fallback": TEMPLATE if number == 2 else None,
        "times": {"queued": 0.0002, "lookup": 0.004, "first_token": 3.01},
        "timeline": [
            dict(zip(("step", "node", "began_seconds", "seconds", "detail"), step, strict=True)) for step in steps
        ],
        "outcome": {"finish": "stop", "decoded_tokens": 212, "seconds": 8.4, "first_token_seconds": 3.01},
    }


async def _viewers(request: Request) -> JSONResponse:
    client = sys.modules.get("nicegui.client")
    return JSONResponse(len(client.Client.instances) if client else None)


def serve(port: int) -> None:
    """Serve the dashboard of a `HostileHead` on loopback, and at ``/viewers`` how many look; null before the first."""
    with dashboard(HostileHead(), ApiSettings()) as routes, bind("127.0.0.1", port) as listener:
        app = Starlette(routes=[*routes, Route("/viewers", _viewers)])
        Server([Site("api", app, [listener], websockets=True)]).run(
            lambda: sys.stderr.write("is ready at last\n") and None
        )


if __name__ == "__main__":
    serve(int(sys.argv[1]))

__all__ = ["MARKUP", "SCRIPTED", "TEMPLATE", "TURNED", "HostileHead", "serve"]
