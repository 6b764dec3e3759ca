from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kakeya_ops.engine.contract import DecodeRequest, PrefillEvent, TokenEvent
from kakeya_ops.engine.engine import Engine
from kakeya_ops.errors import EngineBusy, EngineDead
from kakeya_ops.openai_api.errors import ApiError, ClientGone
from kakeya_ops.openai_api.generation import Delta, Generation, Transcript
from kakeya_ops.serving.contract import GenerateRequest, PrefixReady
from openai_api.fronts import LocalHead

TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]


def request(head: LocalHead, max_tokens: int) -> GenerateRequest:
    return GenerateRequest(DecodeRequest("r", tuple(head.text.encode("Once")), max_tokens), "tenant")


async def exhaust(generation: Generation) -> None:
    while True:
        await generation.next()


async def stays() -> Any:
    """The channel of a client that waits."""
    await asyncio.Event().wait()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), 30)

    asyncio.run(bounded())


def test_events_come_in_order_from_the_heads_threads(engine: Engine) -> None:
    head = LocalHead(engine)

    async def work() -> None:
        async with Generation(head, request(head, 5), stays) as generation:
            events = []
            while not (events and isinstance(events[-1], TokenEvent) and events[-1].finish):
                events.append(await generation.next())
        kinds = [type(event) for event in events]
        assert kinds == [PrefillEvent] * (len(kinds) - 6) + [PrefixReady] + [TokenEvent] * 5

    run(work)
    assert head.cancelled.is_set()


def test_silence_is_none(engine: Engine) -> None:
    head = LocalHead(engine)

    async def work() -> None:
        async with Generation(head, request(head, 1), stays) as generation:
            while not isinstance(event := await generation.next(), TokenEvent):
                pass
            assert event.finish == "length"
            assert await generation.next(0.01) is None

    run(work)


def test_leaving_ends_the_request(engine: Engine) -> None:
    head = LocalHead(engine)

    async def work() -> None:
        async with Generation(head, request(head, 8000), stays) as generation:
            await generation.next()
            raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"):
        run(work)
    engine.call(lambda: None)
    assert engine.decoding == 0


def test_a_client_that_goes_ends_the_request_while_nobody_waits(engine: Engine) -> None:
    head = LocalHead(engine)

    async def goes() -> Any:
        return {"type": "http.disconnect"}

    async def work() -> None:
        async with Generation(head, request(head, 8000), goes) as generation:
            assert await asyncio.get_running_loop().run_in_executor(None, head.cancelled.wait, 10)
            with pytest.raises(ClientGone):
                await exhaust(generation)

    run(work)
    assert head.cancelled.is_set()


def test_a_refusal_is_raised_at_the_start(engine: Engine) -> None:
    head = LocalHead(engine)
    head.refusal = EngineBusy(1)

    async def work() -> None:
        with pytest.raises(EngineBusy):
            async with Generation(head, request(head, 1), stays):
                pass

    run(work)


def test_a_failure_of_the_head_is_an_api_error(engine: Engine) -> None:
    head = LocalHead(engine)
    head.failure = EngineDead("the engine was closed")

    async def work() -> None:
        async with Generation(head, request(head, 1), stays) as generation:
            with pytest.raises(ApiError) as caught:
                await exhaust(generation)
            assert caught.value.code == "engine_dead"

    run(work)


def tell(transcript: Transcript, head: LocalHead, text: str, finish: Any = None) -> list[Delta]:
    tokens = head.text.encode(text)
    return [
        transcript.take(TokenEvent(token, finish if index == len(tokens) - 1 else None, -0.5, ((token, -0.5),)))
        for index, token in enumerate(tokens)
    ]


def test_a_transcript_counts_tokens_and_tells_the_finish(engine: Engine) -> None:
    head = LocalHead(engine)
    transcript = Transcript(head.text.open_stream())
    deltas = tell(transcript, head, "abc", "length")
    assert [delta.finish for delta in deltas] == [None, None, "length"]
    assert transcript.completion_tokens == 3
    assert [entry.offset for delta in deltas for entry in delta.logprobs] == [0, 1, 2]


def test_the_end_mark_is_counted_but_not_shown(engine: Engine) -> None:
    head = LocalHead(engine)
    transcript = Transcript(head.text.open_stream())
    tell(transcript, head, "a")
    last = transcript.take(TokenEvent(3, "stop", -0.1, ()))
    assert (last.segments, last.logprobs, last.finish) == ([], [], "stop")
    assert transcript.completion_tokens == 2


def test_logprobs_wait_until_their_text_is_certain(engine: Engine) -> None:
    head = LocalHead(engine)
    deltas = tell(Transcript(head.text.open_stream(["END"])), head, "aENDb")
    assert [len(delta.logprobs) for delta in deltas] == [1, 0, 0, 0, 0]
    assert deltas[3].finish == "stop"
    spared = tell(Transcript(head.text.open_stream(["END"])), head, "aENd", "length")
    assert [len(delta.logprobs) for delta in spared] == [1, 0, 0, 3]


@pytest.mark.parametrize(("finish", "told"), [("stop", "tool_calls"), ("length", "length")])
def test_only_a_whole_answer_with_a_call_ends_with_tool_calls(engine: Engine, finish: Any, told: str) -> None:
    head = LocalHead(engine)
    transcript = Transcript(head.text.open_stream((), TOOLS))
    tell(transcript, head, '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>')
    assert transcript.take(TokenEvent(3, finish)).finish == told
