"""What is measured. Each measurement starts what it needs, runs its rounds, and returns its lines of the table."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from answers import LIMIT_SECONDS, busy_seconds, idle_seconds, slow_one
from client import Stream, signed, stream_completion
from models import Prompts
from processes import HEAD_CORE, WORKER_CORE, Direct, Fleet, PeerServer, Stage, get_json, wait_until
from results import Measure

from faults.proxy import Fault, FaultProxy
from kakeya_ops.demo.fleet import LOOPBACK, choose_ports, write_fleet
from kakeya_ops.secret import read_fleet_key

BLOCK_TOKENS = 64
_SHORT_PROMPT_TOKENS = 24
_SHORT_REQUESTS = 40
_SETTLED_TOKENS = 8
_SPEED_TOKENS = 512
_PEER_STEP_TOKENS = 128
_LONGER_FACTOR = 3
_SLOW_BYTES_PER_SECOND = 10e6
_REPEATS = 3
"""Of what takes less than a second, within a round."""


class Bench:
    """The processes that measurements share, started when first asked for."""

    def __init__(
        self, folder: Path, model: Path, tiny: Path, blas: Path | None, *, rounds: int, prefix_tokens: int
    ) -> None:
        self.folder = folder
        self.model = model
        self.tiny = tiny
        self.blas = blas
        self.rounds = rounds
        self.prefix_tokens = prefix_tokens
        self.stage = Stage(blas, folder)
        self.prompts = Prompts(model, seed=1)
        self._directs: list[Direct] = []

    @cached_property
    def fleet(self) -> Fleet:
        """A head and a worker with the measured model."""
        return self.start_fleet(self.model, "")

    def start_fleet(self, model: Path, prefix: str, *, lonely: bool = False) -> Fleet:
        """A fleet of its own with `model`; its processes' names begin with `prefix`."""
        folder = self.folder / f"{prefix}fleet"
        folder.mkdir()
        return Fleet(self.stage, write_fleet(folder, model), prefix, lonely=lonely)

    def start_slow_fleet(self, bytes_per_second: float) -> tuple[Fleet, FaultProxy]:
        """A fleet of its own whose worker sends no faster than that, and the proxy that sees to it."""
        folder = self.folder / "slow-fleet"
        folder.mkdir()
        plan = write_fleet(folder, self.model)
        proxy = FaultProxy((LOOPBACK, plan.worker_port))
        proxy.set(down=Fault(bytes_per_second=bytes_per_second))
        inventory = folder / "head.yaml"
        inventory.write_text(plan.inventory.read_text().replace(str(plan.worker_port), str(proxy.port)))
        return Fleet(self.stage, plan, "slow-", head_inventory=inventory), proxy

    def direct(self, core: int, kind: str, *arguments: str) -> Direct:
        """A child that measures without HTTP; ended with the rest."""
        self._directs.append(Direct(core, self.blas, kind, *arguments))
        return self._directs[-1]

    def say(self, text: str) -> None:
        """Tell the person who waits."""
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """End every process."""
        for direct in self._directs:
            direct.close()
        self.stage.close()


def measure_speed(bench: Bench) -> list[Measure]:
    """What shipping KV costs the worker. Short runs in quick turns, so that both sides meet the same machine."""
    speed = Measure("worker's prefill tokens per CPU second ÷ mlx-lm's own, same chunks", "tok/s", "at least", 0.98)
    own = bench.direct(WORKER_CORE, "own", str(bench.model))
    fleet = bench.fleet
    worker = psutil.Process(bench.stage.children["worker"].pid)
    for _ in range(_REPEATS * bench.rounds):
        text = bench.prompts.make(_SPEED_TOKENS + 1)
        with bench.stage.only(*fleet.names, ready=fleet.ready):
            before = _settled_cpu_seconds(worker)
            _, receipt = _ask(fleet, bench.prompts, text, {"remote"})
            cpu_seconds = _cpu_seconds(worker) - before
        with bench.stage.only():
            theirs = own.ask(tokens=bench.prompts.tokens(text), chunk_tokens=BLOCK_TOKENS)
        computed = receipt["remote"]["worker_receipt"]["computed_tokens"]
        speed.add(computed / cpu_seconds, _SPEED_TOKENS / theirs["cpu_seconds"])
    bench.say(f"worker's speed: {speed.median:.3f} of mlx-lm's own")
    return [speed]


def measure_prefix(bench: Bench) -> list[Measure]:
    """Cold, held by a peer, and local, for one prompt after the other."""
    cold = Measure("remote cold TTFT ÷ worker's pure prefill time", "s", "at most", 1.05)
    held = Measure("TTFT of a prefix that a peer holds ÷ cold local TTFT", "s", "at most", 0.05)
    rate = Measure("KV received and verified ÷ raw TCP socket", "GB/s", "at least", 0.6)
    placed = Measure("KV received, verified and placed in MLX's memory ÷ raw TCP socket", "GB/s")
    stored = Measure("stored bytes ÷ raw KV", "MB", "at most", 1.02)
    sender, receiver = bench.direct(WORKER_CORE, "send"), bench.direct(HEAD_CORE, "receive")
    fleet = bench.fleet
    for number in range(bench.rounds):
        text = bench.prompts.make(bench.prefix_tokens + 1)
        with bench.stage.only(*fleet.names, ready=fleet.ready):
            first, first_receipt = _ask(fleet, bench.prompts, text, {"remote"})
            again = [_ask(fleet, bench.prompts, text, {"remote", "skip-local-pool"}) for _ in range(_REPEATS)]
        work = first_receipt["remote"]["worker_receipt"]
        with bench.stage.only("head"):
            local, _ = _ask(fleet, bench.prompts, text, {"local"})
        with bench.stage.only():
            count = work["payload_bytes"]
            raw = count / 1e9 / median(_raw_seconds(sender, receiver, count) for _ in range(_REPEATS))
        again_seconds = median(stream.first_seconds for stream, _ in again)
        cold.add(first.first_seconds, work["compute_seconds"])
        held.add(again_seconds, local.first_seconds)
        times = [receipt["times"] for _, receipt in again]
        rate.add(count / 1e9 / median(time["transfer"] - time["import"] for time in times), raw)
        placed.add(count / 1e9 / median(time["transfer"] for time in times), raw)
        if number == 0:
            with bench.stage.only(*fleet.names, ready=fleet.ready):
                stored.add(_stored_bytes(fleet) / 1e6, _raw_kv_bytes(bench.model, work["computed_tokens"]) / 1e6)
        bench.say(
            f"round {number + 1}: remote cold {first.first_seconds:.2f} s (worker {work['compute_seconds']:.2f} s), "
            f"held {again_seconds:.3f} s, local {local.first_seconds:.2f} s"
        )
    return [cold, held, rate, placed, stored]


def measure_gap(bench: Bench) -> list[Measure]:
    """How long a running stream stands still while somebody's cold prompt arrives, and how long another one's."""
    plain = PeerServer(bench.stage, bench.model)
    stepped = PeerServer(bench.stage, bench.model, "stepped", ["--prefill-step-size", str(_PEER_STEP_TOKENS)])
    measures = []
    for tokens in (bench.prefix_tokens, _LONGER_FACTOR * bench.prefix_tokens):
        beside = f"beside a cold prompt of {tokens:,} tokens"
        longest = Measure(f"longest gap of a running stream {beside} ÷ mlx_lm.server", "s", "at most", 0.01)
        usual = Measure(f"99th percentile of the gaps {beside} ÷ mlx_lm.server in steps of 128", "s", "at most", 0.2)
        for number in range(bench.rounds):
            sides = (_our_side(bench), _their_side(plain), _their_side(stepped))
            ours, theirs, fine = (_gaps_of(bench, tokens, side) for side in sides)
            longest.add(max(ours), max(theirs))
            usual.add(slow_one(ours, 0.99), slow_one(fine, 0.99))
            bench.say(
                f"round {number + 1}, {tokens} tokens: longest gap {max(ours):.3f} s, theirs {max(theirs):.3f} s; "
                f"99th percentile {slow_one(ours, 0.99):.3f} s, theirs in steps {slow_one(fine, 0.99):.3f} s"
            )
        measures += [longest, usual]
    return measures


def measure_slow_link(bench: Bench) -> list[Measure]:
    """A cold prompt whose KV comes through a proxy that passes ten megabytes a second."""
    cold = Measure("remote cold TTFT through 10 MB/s ÷ worker's pure prefill time", "s", "at most", 1.10)
    fleet, proxy = bench.start_slow_fleet(_SLOW_BYTES_PER_SECOND)
    with proxy:
        for number in range(bench.rounds):
            text = bench.prompts.make(bench.prefix_tokens + 1)
            with bench.stage.only(*fleet.names, ready=fleet.ready):
                stream, receipt = _ask(fleet, bench.prompts, text, {"remote"})
            work_seconds = receipt["remote"]["worker_receipt"]["compute_seconds"]
            cold.add(stream.first_seconds, work_seconds)
            bench.say(f"round {number + 1}: through 10 MB/s {stream.first_seconds:.2f} s, worker {work_seconds:.2f} s")
    return [cold]


def measure_added_time(bench: Bench) -> list[Measure]:
    """What HTTP, text, hashing and the scheduler cost a short request; with a tiny model, whose own time is short."""
    added = Measure(
        "head's added time for a request with no remote part",
        "ms",
        "at most",
        5,
        combine=lambda ours, theirs: ours - theirs,
        result_unit="ms",
    )
    fleet = bench.start_fleet(bench.tiny, "tiny-", lonely=True)
    engine = bench.direct(HEAD_CORE, "engine", str(bench.tiny))
    prompts = Prompts(bench.tiny, seed=2)
    with bench.stage.only(*fleet.names, ready=fleet.ready):
        for _ in range(bench.rounds):
            samples = [_short_request(fleet, engine, prompts) for _ in range(_SHORT_REQUESTS)]
            added.add(*(1e3 * median(side) for side in zip(*samples, strict=True)))
    return [added]


def measure_answers(bench: Bench) -> list[Measure]:
    """How soon the API answers beside a long prompt that the head computes itself."""
    beside = Measure("API answers beside a long prompt, 95th percentile ÷ idle", "ms")
    limit = Measure("the same ÷ 50 ms", "ms", "at most", 1.0)
    fleet = bench.fleet
    port = fleet.plan.api_port
    for number in range(bench.rounds):
        text = bench.prompts.make(bench.prefix_tokens + 1)
        with bench.stage.only("head"):
            idle = slow_one(idle_seconds(port))
            busy = slow_one(busy_seconds(port, lambda text=text: _ask(fleet, bench.prompts, text, {"local"})))
        beside.add(1e3 * busy, 1e3 * idle)
        limit.add(1e3 * busy, 1e3 * LIMIT_SECONDS)
        bench.say(f"round {number + 1}: an answer takes {1e3 * busy:.1f} ms, idle {1e3 * idle:.1f} ms")
    return [beside, limit]


MEASUREMENTS: dict[str, Callable[[Bench], list[Measure]]] = {
    # First, while the worker's pool is still empty.
    "prefix": measure_prefix,
    "speed": measure_speed,
    "slow": measure_slow_link,
    "gap": measure_gap,
    "added": measure_added_time,
    "answers": measure_answers,
}


def _request(model: str, text: str, prompts: Prompts) -> dict[str, Any]:
    """A greedy completion of a few tokens; one of them must be visible, so none may end the text."""
    bias = {str(token): -100 for token in prompts.special_tokens}
    return {"model": model, "prompt": text, "max_tokens": 4, "temperature": 0, "logit_bias": bias}


def _ask(fleet: Fleet, prompts: Prompts, text: str, modes: set[str]) -> tuple[Stream, dict[str, Any]]:
    request = _request(fleet.plan.model.name, text, prompts)
    headers = signed(request, frozenset(modes), read_fleet_key(fleet.plan.key_file))
    stream = stream_completion(fleet.plan.api_port, request, headers)
    receipt = get_json(f"{fleet.plan.url}/v1/network/receipts/{stream.request_id}")
    if receipt is None or receipt["fallback"] or bool(receipt["remote"]) != ("remote" in modes):
        raise RuntimeError(f"not measured what was asked for ({'+'.join(sorted(modes))}): {receipt}")
    return stream, receipt


def _raw_seconds(sender: Direct, receiver: Direct, count: int) -> float:
    port = choose_ports(1)[0]
    result: dict[str, Any] = {}
    listening = threading.Thread(target=lambda: result.update(receiver.ask(port=port, count=count)))
    listening.start()
    sender.ask(port=port, count=count)
    listening.join()
    return float(result["seconds"])


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _settled_cpu_seconds(process: psutil.Process) -> float:
    """Its processor time once it is idle: a node that was stopped first tests its engine."""
    last = -1.0
    while (now := _cpu_seconds(process)) != last:
        last = now
        time.sleep(0.3)
    return now


def _stored_bytes(fleet: Fleet) -> int:
    """What the worker's pool holds, by its newest card."""

    def used() -> int:
        return sum(card["pool"]["used_bytes"] for card in fleet.nodes() if card["role"] == "worker")

    wait_until("the worker's next card", lambda: used() > 0)
    return used()


def _raw_kv_bytes(model: Path, tokens: int) -> int:
    """Keys and values of `tokens` tokens in float32, by the model's own description."""
    config = json.loads((model / "config.json").read_text())
    return int(2 * 4 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * tokens)


Side = tuple[tuple[str, ...], Callable[[], bool], int, str]
"""Who runs, when they are ready, and where which model is asked for."""


def _our_side(bench: Bench) -> Side:
    fleet = bench.fleet
    return fleet.names, fleet.ready, fleet.plan.api_port, fleet.plan.model.name


def _their_side(peer: PeerServer) -> Side:
    return (peer.name,), peer.ready, peer.port, "default_model"


def _gaps_of(bench: Bench, tokens: int, side: Side) -> list[float]:
    names, ready, port, model = side
    with bench.stage.only(*names, ready=ready):
        return _gaps(bench, tokens, port, model)


def _gaps(bench: Bench, tokens: int, port: int, model: str) -> list[float]:
    """Seconds of every pause of one stream while another client waits for the first token of a cold prompt."""
    stop = threading.Event()
    running = Stream(0.0)
    request = _request(model, bench.prompts.make(_SHORT_PROMPT_TOKENS), bench.prompts) | {"max_tokens": 4096}
    reader = threading.Thread(target=stream_completion, args=(port, request), kwargs={"stop": stop, "into": running})
    reader.start()
    wait_until("settled stream", lambda: len(running.arrivals) >= _SETTLED_TOKENS)
    text = bench.prompts.make(tokens + 1)
    newcomer = stream_completion(port, _request(model, text, bench.prompts))
    heard = len(running.arrivals)
    wait_until("the stream's next tokens", lambda: len(running.arrivals) > heard + 1 or not reader.is_alive())
    stop.set()
    reader.join()
    began, ended = newcomer.began, newcomer.arrivals[0]
    if running.arrivals[-1] < ended:
        raise RuntimeError("the running stream ended before the other prompt was through")
    return [later - earlier for earlier, later in pairwise(running.arrivals) if later > began and earlier < ended]


def _short_request(fleet: Fleet, engine: Direct, prompts: Prompts) -> tuple[float, float]:
    text = prompts.make(_SHORT_PROMPT_TOKENS)
    ours = stream_completion(fleet.plan.api_port, _request(fleet.plan.model.name, text, prompts)).first_seconds
    return ours, float(engine.ask(tokens=prompts.tokens(text))["seconds"])
