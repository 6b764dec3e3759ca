from __future__ import annotations

import threading

from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.serving.job import Job, JobEnd, ReadyPart, Subscription, Wish
from kakeya_ops.wire.bodies import Progress
from serving.running import hash_prompt, payload, simple_identity, simple_layout

LAYOUT = simple_layout()
PROMPT = hash_prompt(simple_identity(LAYOUT), tuple(range(100)))


class Desk:
    """A book that only notes who leaves."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.left: list[Subscription] = []

    def progress(self, job: Job) -> Progress:
        return Progress(stage="queued", blocks=job.blocks)

    def leave(self, job: Job, subscription: Subscription) -> None:
        subscription.release()
        self.left.append(subscription)


def subscribe(pool: BlockPool, blocks: int = 5) -> tuple[Subscription, Desk]:
    """A subscriber for whom the first part of block 0 and of block 1 are pinned."""
    desk = Desk()
    subscription = Subscription(Job(PROMPT, blocks), Wish(PROMPT, 0, blocks), lambda: None, desk)
    for block in (0, 1):
        key = PROMPT.key(block, 0)
        assert pool.put(key, payload(LAYOUT, 0, block))
        subscription.offer(block, key, pool.pin([key]))
    return subscription, desk


def test_a_wish_is_what_is_needed_and_not_there_yet() -> None:
    assert Wish(PROMPT, 0, 5).parts == {0: (0,), 1: (0,), 2: (0,), 3: (0, 1), 4: (0, 1)}
    assert Wish(PROMPT, 3, 5).parts == {3: (0, 1), 4: (0, 1)}
    assert Wish(PROMPT, 5, 5).parts == {}


def test_parts_are_taken_in_order_and_unpinned() -> None:
    pool = BlockPool(2**20)
    subscription, _ = subscribe(pool)
    pinned = pool.stats().pinned_bytes
    assert subscription.take() == ReadyPart(0, PROMPT.key(0, 0), payload(LAYOUT, 0, 0))
    assert pool.stats().pinned_bytes == pinned // 2
    assert subscription.waiting
    assert isinstance(subscription.take(), ReadyPart)
    assert (pool.stats().pinned_bytes, subscription.waiting) == (0, False)
    assert subscription.take() is None


def test_what_is_ready_comes_before_the_end_even_if_that_is_an_error() -> None:
    subscription, _ = subscribe(BlockPool(2**20))
    error = RuntimeError("late")
    subscription.end(error)
    subscription.end(None)
    assert [type(subscription.take()) for _ in range(3)] == [ReadyPart, ReadyPart, JobEnd]
    assert subscription.take() == JobEnd(error)


def test_closing_unpins_everything() -> None:
    pool = BlockPool(2**20)
    subscription, desk = subscribe(pool)
    subscription.close()
    assert pool.stats().pinned_bytes == 0
    assert desk.left == [subscription]


def test_an_account_counts_whole_blocks() -> None:
    job = Job(PROMPT, 5, resume_blocks=2, done_blocks=5, queue_seconds=1.0, seconds=3.0)
    account = job.account()
    assert (account.computed_tokens, account.pool_tokens) == (3 * 16, 2 * 16)
    assert (account.queue_seconds, account.compute_seconds) == (1.0, 2.0)
    assert account.finished_at == account.started_at + 3.0


def test_jobs_are_equal_for_equal_prefixes_of_one_tenant() -> None:
    longer = hash_prompt(simple_identity(LAYOUT), tuple(range(120)))
    other = hash_prompt(simple_identity(LAYOUT), tuple(range(100)), tenant="another")
    assert Job(PROMPT, 5).key == Job(longer, 5).key
    assert len({Job(PROMPT, 5).key, Job(PROMPT, 4).key, Job(other, 5).key}) == 3
