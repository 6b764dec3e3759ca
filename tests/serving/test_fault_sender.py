from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from kakeya_ops.kv.pool import PartKey
from kakeya_ops.secret import Secret
from kakeya_ops.serving import fault_sender
from kakeya_ops.serving.fault_sender import SpoiltStream
from kakeya_ops.serving.fault_stream import Spoiler
from kakeya_ops.wire.drills import Act, Fault
from kakeya_ops.wire.frames import FrameReader, FrameType, FrameWriter
from kakeya_ops.wire.packing import Packing
from serving.running import KEY, block_hash, floats, simple_layout

LAYOUT = simple_layout()
TAG_KEY = Secret(b"the key of one stream, 32 bytes!")
PACKINGS = [None, Packing(LAYOUT)]
BLOCKS = 3


def stream(packing: Packing | None) -> list[bytes]:
    writer = FrameWriter(TAG_KEY)
    encoded = [writer.encode(FrameType.HEADER, b"{}")]
    for index in range(BLOCKS):
        part = floats(LAYOUT, 0, index)
        packed = packing.pack(0, part.data) if packing else None
        encoded.append(writer.encode_block(PartKey(block_hash(index), 0), index, part, packed))
    return [head + bytes(data) for head, data in [*encoded, writer.encode(FrameType.END)]]


class Client:
    """Whoever the answer is for: what came to it, and whether it was hung up on."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.hung_up = False

    async def send(self, message: Message) -> None:
        self.messages.append(message)

    def hang_up(self) -> None:
        self.hung_up = True

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


def answer(client: Client, fault: Fault, packing: Packing | None, pieces: list[bytes], status: int = 200) -> None:
    reader = FrameReader(TAG_KEY, LAYOUT, packing=packing)
    spoilt = SpoiltStream(client.send, client.hang_up, reader, Spoiler(fault, BLOCKS, TAG_KEY, KEY))

    async def run() -> None:
        await spoilt({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"7")]})
        for piece in pieces:
            await spoilt({"type": "http.response.body", "body": piece, "more_body": True})
        await spoilt({"type": "http.response.body", "body": b""})

    asyncio.run(run())


@pytest.mark.parametrize("packing", PACKINGS, ids=["as it is", "packed"])
@pytest.mark.parametrize("piece_bytes", [1, 1000, 10**6])
def test_frames_are_found_however_the_answer_is_cut(piece_bytes: int, packing: Packing | None) -> None:
    client, whole = Client(), b"".join(frames := stream(packing))
    pieces = [whole[start : start + piece_bytes] for start in range(0, len(whole), piece_bytes)]
    answer(client, Fault(act=Act.REPEAT, at="middle"), packing, pieces)
    assert client.body == b"".join([*frames[:3], frames[2], *frames[3:]])
    assert client.messages[0]["headers"] == []
    assert not client.messages[-1].get("more_body")


@pytest.mark.parametrize("packing", PACKINGS, ids=["as it is", "packed"])
def test_after_hanging_up_nothing_more_is_sent(packing: Packing | None) -> None:
    client, frames = Client(), stream(packing)
    answer(client, Fault(act=Act.CUT, at="first"), packing, frames)
    assert client.hung_up
    assert client.body == frames[0] + frames[1][: len(frames[1]) // 2]
    assert client.messages[-1]["more_body"]


def test_whatever_is_no_stream_goes_by() -> None:
    client = Client()
    answer(client, Fault(act=Act.CUT), None, [b"no "], status=404)
    assert (client.messages[0]["headers"], client.body) == ([(b"content-length", b"7")], b"no ")


@pytest.mark.parametrize(("act", "order"), [(Act.DIE, "end"), (Act.PAUSE, "sleep 3.0")])
def test_what_is_done_to_the_whole_process(act: Act, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(fault_sender, "end_process", lambda: done.append("end"))
    monkeypatch.setattr(fault_sender.time, "sleep", lambda seconds: done.append(f"sleep {seconds}"))
    answer(Client(), Fault(act=act, seconds=3), None, stream(None))
    assert done == [order]
