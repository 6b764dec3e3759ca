"""Mixed load with faults against a loopback fleet, every answer compared, every process watched."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.steadiness import STRICT, Limits, Reading, Rest, judge, read, rest
from faults.proxy import Fault
from flows.heads import wait_until
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt
from kakeya_ops.errors import KakeyaError

PROMPT_TOKENS = (90, 200, 500, 900)
_ANSWER_TOKENS = 8
_SETTLE_SECONDS = 4.0
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class SoakPlan:
    """How long the load lasts, after `warm_up_seconds` in which nothing is judged, and what it is made of."""

    seconds: float
    warm_up_seconds: float
    clients: int = 3
    think_seconds: float = 0.2
    fault_seconds: float = 8.0
    rest_seconds: float = 5.0
    known_prompts: int = 6
    seed: int = 1


@dataclass
class SoakReport:
    """What came of it. `wrong` and `failed` hold a sentence for each answer that was not what it must be."""

    answered: int = 0
    abandoned: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    series: dict[tuple[str, int], list[Reading]] = field(default_factory=lambda: defaultdict(list))
    rests: dict[str, Rest] = field(default_factory=dict)
    touched: list[str] = field(default_factory=list)

    def complaints(self, limits: Limits = STRICT) -> list[str]:
        """Everything that is not as it must be."""
        grown = [said for (name, _), series in self.series.items() for said in judge(name, series, limits)]
        return [*self.wrong, *self.failed, *grown, *self._unrest(limits)]

    def _unrest(self, limits: Limits) -> Iterator[str]:
        for name, found in self.rests.items():
            if found.cpu_share >= limits.cpu_share_at_rest:
                yield f"{name} used {found.cpu_share:.1%} of a core with nothing to do"
            if found.written_bytes:
                yield f"{name} had {found.written_bytes} bytes written to disk with nothing to do"
        yield from (f"{path} was written to with nothing to do" for path in self.touched)


class Soak:
    """One run against `fleet`, whose node called ``worker`` is ill-treated through its proxy and by signals."""

    def __init__(self, fleet: LoopbackFleet, plan: SoakPlan) -> None:
        self._fleet = fleet
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, ...]] = {}
        self._crash: Exception | None = None
        self.report = SoakReport()

    def run(self, tell: Callable[[str], None] = lambda text: None) -> SoakReport:
        """Load and faults for the planned time, then rest."""
        tell("asking for the answers that all others are compared with")
        self._learn()
        began = time.monotonic()
        with self._clients():
            for number, fault in enumerate(itertools.cycle(self._faults()), 1):
                if not self._watch(began, began + number * self._plan.fault_seconds):
                    break
                self.report.faults[fault.__name__] += 1
                tell(f"{time.monotonic() - began:.0f} s: {self.report.answered} answered; now: {fault.__name__}")
                fault()
                self._fleet.heal("worker")
        self._fleet.head.wait_for_peer("worker")
        wait_until(self._idle, "the end of all work")
        tell("nothing to do")
        self._rest()
        return self.report

    def _learn(self) -> None:
        for number in range(self._plan.known_prompts):
            prompt = fresh_prompt(PROMPT_TOKENS[number % len(PROMPT_TOKENS)])
            self._known[prompt] = self._fleet.head.complete(prompt, "local", max_tokens=_ANSWER_TOKENS)[0].tokens

    @contextlib.contextmanager
    def _clients(self) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._ask_on, args=(n,), name=f"client-{n}") for n in range(self._plan.clients)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(120)
        if self._crash:
            raise self._crash

    def _ask_on(self, number: int) -> None:
        chosen = random.Random(self._plan.seed * 1000 + number)
        try:
            while not self._over.wait(chosen.uniform(0, 2 * self._plan.think_seconds)):
                chosen.choice([self._ask_known, self._ask_known, self._ask_new, self._go_away])(chosen)
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            self._crash = error
            self._over.set()

    def _ask_known(self, chosen: random.Random) -> None:
        prompt = chosen.choice(list(self._known))
        modes = chosen.choice([(), ("remote",), ("skip-local-pool",), ("local",)])
        tokens = self._ask(prompt, modes)
        if tokens is not None and tokens != self._known[prompt]:
            with self._lock:
                self.report.wrong.append(f"another answer than before to a prompt of {len(prompt)} tokens ({modes})")

    def _ask_new(self, chosen: random.Random) -> None:
        self._ask(fresh_prompt(chosen.choice(PROMPT_TOKENS)), chosen.choice([(), ("remote",)]))

    def _go_away(self, chosen: random.Random) -> None:
        with self._fleet.head.started(fresh_prompt(PROMPT_TOKENS[-1]), "remote", max_tokens=200):
            self._over.wait(chosen.uniform(0, 0.1))
        with self._lock:
            self.report.abandoned += 1

    def _ask(self, prompt: str, modes: Sequence[str]) -> tuple[str, ...] | None:
        try:
            completion, _ = self._fleet.head.complete(prompt, *modes, max_tokens=_ANSWER_TOKENS)
        except KakeyaError as error:
            with self._lock:
                self.report.failed.append(f"a request failed: {error.message}")
            return None
        with self._lock:
            self.report.answered += 1
        return completion.tokens

    def _watch(self, began: float, until: float) -> bool:
        """Take readings until then; False once the planned time is over."""
        period = min(max(self._plan.seconds / 200, 0.5), 10)
        while (now := time.monotonic()) < until:
            if self._over.is_set() or now > began + self._plan.warm_up_seconds + self._plan.seconds:
                return False
            if now > began + self._plan.warm_up_seconds:
                for name, child in self._fleet.children.items():
                    with contextlib.suppress(psutil.Error):
                        self.report.series[name, child.pid].append(read(psutil.Process(child.pid)))
            self._over.wait(period)
        return True

    def _faults(self) -> list[Callable[[], None]]:
        return [
            self.stream_cut,
            self.stream_corrupted,
            self.connections_severed,
            self.worker_paused,
            self.worker_killed,
        ]

    def stream_cut(self) -> None:
        """Streams from the worker end in their middle."""
        self._spoil(Fault(cut_after_bytes=self._random.randrange(1000, 60_000)))

    def stream_corrupted(self) -> None:
        """One bit of each stream is wrong."""
        self._spoil(Fault(corrupt_at_byte=self._random.randrange(400, 20_000)))

    def connections_severed(self) -> None:
        """All at once."""
        self._fleet.proxies["worker"].sever()

    def worker_paused(self) -> None:
        """It stands still for a moment."""
        child = self._fleet.children["worker"]
        child.signal_group(signal.SIGSTOP)
        self._over.wait(_PAUSE_SECONDS)
        child.signal_group(signal.SIGCONT)

    def worker_killed(self) -> None:
        """As by a power cut; another process takes its place."""
        self._fleet.end("worker")
        self._fleet.restart("worker")

    def _spoil(self, fault: Fault) -> None:
        proxy = self._fleet.proxies["worker"]
        proxy.set(down=fault)
        proxy.sever()
        self._over.wait(2 * _PAUSE_SECONDS)

    def _idle(self) -> bool:
        loads = [self._fleet.card(name).load for name in self._fleet.children]
        return not any(load.running or load.queued for load in loads)

    def _rest(self) -> None:
        time.sleep(_SETTLE_SECONDS)
        watched = {name: psutil.Process(child.pid) for name, child in self._fleet.children.items()}
        waiting = [threading.Thread(target=self._rest_one, args=pair) for pair in watched.items()]
        before = _stamps(self._fleet.directory)
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
        after = _stamps(self._fleet.directory)
        self.report.touched = sorted(path for path, stamp in after.items() if before.get(path) != stamp)

    def _rest_one(self, name: str, process: psutil.Process) -> None:
        self.report.rests[name] = rest(process, self._plan.rest_seconds)


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file: also where a file system is no disk, whose writes the system counts."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.name: ((stat := path.stat()).st_size, stat.st_mtime_ns) for path in files}
