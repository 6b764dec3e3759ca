from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kakeya_ops.errors import StreamCorrupt
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.secret import Secret
from kakeya_ops.serving.fault_stream import Die, Freeze, HangUp, SentFrame, Spoiler, Step, Wait
from kakeya_ops.wire.bodies import Progress, StreamHeader, WorkerReceipt
from kakeya_ops.wire.drills import ON_STREAMS, Act, At, Fault
from kakeya_ops.wire.frames import HEAD_BYTES, FrameReader, FrameType, FrameWriter
from kakeya_ops.wire.packing import Packing
from serving.running import KEY, block_hash, floats, simple_layout

LAYOUT = simple_layout()
TAG_KEY = Secret(b"the key of one stream, 32 bytes!")
PACKINGS = [None, Packing(LAYOUT)]
BLOCKS = 5
HASHES = [block_hash(index) for index in range(BLOCKS)]
HEADER = StreamHeader(node="w", epoch=1, instance="ab" * 16, identity="11" * 32)
RECEIPT = WorkerReceipt(
    job="j",
    node="w",
    epoch=1,
    instance="ab" * 16,
    identity="11" * 32,
    request_nonce="cd" * 16,
    prompt_blocks=BLOCKS,
    from_blocks=0,
    computed_tokens=80,
    pool_tokens=0,
    blocks_digest="22" * 32,
    payload_bytes=1,
    queue_seconds=0,
    compute_seconds=1,
    started_at=1,
    finished_at=2,
).sign(KEY)


def frames(packing: Packing | None = None) -> Iterator[SentFrame]:
    writer, reader = FrameWriter(TAG_KEY), FrameReader(TAG_KEY, LAYOUT, packing=packing)
    encoded = [writer.encode(FrameType.HEADER, HEADER.encode())]
    for index, hash in enumerate(HASHES):
        part = floats(LAYOUT, 0, index)
        packed = packing.pack(0, part.data) if packing else None
        assert (packed is None) == (packing is None)
        encoded.append(writer.encode_block(PartKey(hash, 0), index, part, packed))
    encoded += [writer.encode(FrameType.RECEIPT, RECEIPT.encode()), writer.encode(FrameType.END)]
    for head_bytes, data in encoded:
        head = reader.parse_head(head_bytes)
        reader.check(head, data)
        yield SentFrame(head, head_bytes, bytes(data))


def spoil(act: Act, at: At = "middle", packing: Packing | None = None, **more: float) -> list[list[Step]]:
    """What becomes of each frame."""
    fault = Fault.model_validate({"act": act, "at": at, **more})
    spoiler = Spoiler(fault, BLOCKS, TAG_KEY, KEY)
    return [list(spoiler.spoil(frame)) for frame in frames(packing)]


def received(steps: list[list[Step]], packing: Packing | None = None) -> list[tuple[FrameType, bytes]]:
    """What a reader that asked for exactly these blocks lets through. Raises `StreamCorrupt`."""
    data = b"".join(step for frame in steps for step in frame if isinstance(step, bytes))
    reader, found = FrameReader(TAG_KEY, LAYOUT, hashes=HASHES, packing=packing), []
    while not reader.ended:
        head = reader.parse_head(data[:HEAD_BYTES])
        body, data = data[HEAD_BYTES : HEAD_BYTES + head.length], data[HEAD_BYTES + head.length :]
        found.append((head.type, bytes(reader.check(head, body))))
    return found


@pytest.mark.parametrize(
    "act",
    [Act.FLIP, Act.FLIP_HEAD, Act.GARBAGE, Act.OVERSIZE, Act.REPEAT, Act.DROP, Act.SWAP, Act.FOREIGN],
)
@pytest.mark.parametrize("at", ["first", "middle", "last"])
@pytest.mark.parametrize("packing", PACKINGS, ids=["as it is", "packed"])
def test_a_reader_finds_what_is_wrong_with_a_frame(act: Act, at: At, packing: Packing | None) -> None:
    with pytest.raises(StreamCorrupt):
        received(spoil(act, at, packing), packing)


@pytest.mark.parametrize(("at", "index"), [("first", 0), ("middle", 2), ("last", 4)])
def test_what_breaks_breaks_in_the_block_that_is_aimed_at(at: At, index: int) -> None:
    steps = spoil(Act.CUT, at)
    whole = [frame.raw for frame in frames()]
    assert steps[: index + 1] == [[raw] for raw in whole[: index + 1]]
    half, end = steps[index + 1]
    assert half == whole[index + 1][: len(whole[index + 1]) // 2]
    assert isinstance(end, HangUp)


def test_stalls_pauses_and_ends_are_orders_to_the_sender() -> None:
    assert [type(step) for step in spoil(Act.STALL, seconds=7)[3]] == [bytes, Wait, HangUp]
    assert spoil(Act.PAUSE, seconds=2)[3][0] == Freeze(2)
    assert [type(step) for step in spoil(Act.DIE)[3]] == [bytes, Die]


@pytest.mark.parametrize("packing", PACKINGS, ids=["as it is", "packed"])
def test_a_paused_or_slow_stream_is_whole(packing: Packing | None) -> None:
    whole = received([[frame.raw] for frame in frames(packing)], packing)
    assert received(spoil(Act.PAUSE, packing=packing), packing) == whole
    slow = spoil(Act.SLOW, packing=packing, bytes_per_second=1000)
    assert received(slow, packing) == whole
    waited = sum(step.seconds for frame in slow for step in frame if isinstance(step, Wait))
    assert waited == pytest.approx(sum(len(frame.raw) for frame in frames(packing)) / 1000)


@pytest.mark.parametrize("packing", PACKINGS, ids=["as it is", "packed"])
def test_a_late_stream_says_that_it_computes_and_is_whole_in_the_end(packing: Packing | None) -> None:
    late = spoil(Act.LATE, "first", packing=packing, seconds=3)
    assert sum(step.seconds for step in late[1] if isinstance(step, Wait)) == 3
    assert all(not isinstance(step, Wait) for steps in (late[0], *late[2:]) for step in steps)
    found = received(late, packing)
    said = [body for type, body in found if type is FrameType.PROGRESS]
    assert [Progress.parse(body).stage for body in said] == ["computing"] * 3
    whole = received([[frame.raw] for frame in frames(packing)], packing)
    assert [frame for frame in found if frame[0] is not FrameType.PROGRESS] == whole


@pytest.mark.parametrize("packing", PACKINGS, ids=["as it is", "packed"])
def test_an_error_is_the_last_frame(packing: Packing | None) -> None:
    found = received(spoil(Act.ERROR, packing=packing), packing)
    assert [type for type, _ in found] == [FrameType.HEADER, FrameType.BLOCK, FrameType.BLOCK, FrameType.ERROR]


@pytest.mark.parametrize("packing", PACKINGS, ids=["as it is", "packed"])
def test_a_header_of_another_identity_is_well_signed(packing: Packing | None) -> None:
    found, whole = received(spoil(Act.OTHER_HEADER, packing=packing), packing), list(frames())
    assert StreamHeader.parse(found[0][1]) == HEADER.model_copy(update={"identity": "00" * 32})
    assert [body for _, body in found[1:]] == [frame.payload for frame in whole[1:]]


def receipts(act: Act, packing: Packing | None) -> list[bytes]:
    return [body for type, body in received(spoil(act, packing=packing), packing) if type is FrameType.RECEIPT]


@pytest.mark.parametrize("packing", PACKINGS, ids=["as it is", "packed"])
def test_receipts_are_missing_or_cut_short(packing: Packing | None) -> None:
    assert receipts(Act.NO_RECEIPT, packing) == []
    assert receipts(Act.TRUNCATED_RECEIPT, packing) == [RECEIPT.encode()[: len(RECEIPT.encode()) // 2]]


SIGNED: dict[Act, tuple[Callable[[WorkerReceipt], bool], bool]] = {
    Act.FORGED_RECEIPT: (lambda receipt: receipt.computed_tokens == 80, False),
    Act.CHANGED_RECEIPT: (lambda receipt: receipt.computed_tokens == 81, False),
    Act.OTHER_RECEIPT: (lambda receipt: receipt.request_nonce != RECEIPT.request_nonce, True),
    Act.WRONG_RECEIPT: (lambda receipt: receipt.blocks_digest == "00" * 32, True),
}


@pytest.mark.parametrize("packing", PACKINGS, ids=["as it is", "packed"])
@pytest.mark.parametrize("act", SIGNED)
def test_receipts_are_wrong_in_one_way(act: Act, packing: Packing | None) -> None:
    says, valid = SIGNED[act]
    receipt = WorkerReceipt.parse(receipts(act, packing)[0])
    assert says(receipt)
    assert (receipt.model_copy(update={"mac": ""}).sign(KEY).mac == receipt.mac) == valid


@pytest.mark.parametrize("packing", PACKINGS, ids=["as it is", "packed"])
@pytest.mark.parametrize("act", sorted(ON_STREAMS))
def test_every_act_on_streams_changes_something(act: Act, packing: Packing | None) -> None:
    assert spoil(act, packing=packing, seconds=1) != [[frame.raw] for frame in frames(packing)]
