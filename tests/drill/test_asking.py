from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from kakeya_ops.drill.asking import LOCAL, Inquirer
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.wire.signing import new_nonce
from verify.samples import KEY, PROMPT_TOKENS, TOKENS
from verify.scripted_head import ScriptedHead, serve


@pytest.fixture
def head() -> ScriptedHead:
    return ScriptedHead()


@pytest.fixture
def inquirer(head: ScriptedHead) -> Iterator[Inquirer]:
    with serve(head, time.time) as url, HeadClient(url) as client:
        yield Inquirer(client, KEY)


def test_prompts_are_as_long_as_was_asked_and_never_the_same(head: ScriptedHead, inquirer: Inquirer) -> None:
    inquirer.size("worker", 1000)
    assert head.prompts[0]["prompt"].count(" ") >= 500
    bodies = [json.loads(inquirer.body()) for _ in range(2)]
    # The sample had 150 tokens where over a thousand were wanted.
    assert all(body["prompt"].count(" ") > 4 * PROMPT_TOKENS for body in bodies)
    assert bodies[0]["prompt"] != bodies[1]["prompt"]
    assert {body["temperature"] for body in bodies} == {0}


def test_an_answer_comes_with_its_receipt_and_its_time(inquirer: Inquirer) -> None:
    asked = inquirer.ask(inquirer.body(), LOCAL, nonce := new_nonce())
    assert asked.completion.tokens == TOKENS
    assert asked.receipt["client_nonce"] == nonce
    assert 0 < asked.seconds < 10


def test_the_head_tells_of_its_fallbacks_and_nodes(head: ScriptedHead, inquirer: Inquirer) -> None:
    head.replies["/v1/network/summary"] = 200, json.dumps({"fallbacks_by_reason": {"timeout": 2}}).encode()
    assert inquirer.fallbacks() == {"timeout": 2}
    assert inquirer.node("worker")["node"] == "worker"
    assert inquirer.node("nobody") == {}


def test_waiting_ends_in_time(inquirer: Inquirer) -> None:
    answers = iter([False, True])
    assert inquirer.wait(lambda: next(answers), 5) is not None
    assert inquirer.wait(lambda: False, 0) is None
