from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.utils import load_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from kakeya_ops.demo.tiny_model import TOOL_REPLY, write_byte_tokenizer
from kakeya_ops.engine.contract import Finish
from kakeya_ops.engine.text import RESERVED_TEMPLATE_ARGUMENTS, Segment, TextDoor, TextStream
from kakeya_ops.errors import InputError

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]
USER = {"role": "user", "content": "Hello"}
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> TextDoor:
    """Byte-level, with markers for reasoning and for tool calls."""
    path = tmp_path_factory.mktemp("tokenizer")
    write_byte_tokenizer(path, 8192, script=(*TOOL_REPLY[:1], *MARKERS))
    return TextDoor(load_tokenizer(path))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> TextDoor:
    """Byte-level, without any marker."""
    path = tmp_path_factory.mktemp("tokenizer")
    write_byte_tokenizer(path, 8192)
    return TextDoor(load_tokenizer(path))


def write_tokenizer(path: Path, tokenizer: Tokenizer) -> TextDoor:
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return TextDoor(load_tokenizer(path))


@pytest.fixture(scope="module")
def sentence_piece(tmp_path_factory: pytest.TempPathFactory) -> TextDoor:
    """Words with U+2581 for a space, other characters as bytes."""
    words = ["<unk>", "\u2581", "\u2581Hello", "\u2581world", "!", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    space = decoders.Replace("\u2581", " ")
    tokenizer.decoder = decoders.Sequence([space, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), tokenizer)


@pytest.fixture(scope="module")
def word_piece(tmp_path_factory: pytest.TempPathFactory) -> TextDoor:
    """A kind that mlx-lm detokenizes by decoding again and again."""
    vocabulary = {word: index for index, word in enumerate(["[UNK]", "hel", "##lo", "world"])}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), tokenizer)


def read(stream: TextStream, tokens: Sequence[int], finish: Finish = "length") -> Iterator[list[Segment]]:
    """What each of `tokens` gives out; ``stop`` comes with an end mark of its own."""
    for index, token in enumerate(tokens):
        last = index == len(tokens) - 1 and finish == "length"
        yield stream.feed(token, "length" if last else None)
    if finish == "stop":
        yield stream.feed(3, "stop")


def segments(stream: TextStream, tokens: Sequence[int], finish: Finish = "length") -> list[Segment]:
    return [segment for given_out in read(stream, tokens, finish) for segment in given_out]


def joined(found: Sequence[Segment], kind: str = "content") -> str:
    return "".join(segment.text for segment in found if segment.kind == kind)


# Prompts


def test_a_prompt_is_the_tokenizers_tokens(plain: TextDoor) -> None:
    assert plain.decode(plain.encode("Hello, w\u00f6rld")) == "Hello, w\u00f6rld"
    assert plain.eos_token_ids == {3}


def test_no_text_has_fewer_tokens_than_the_longest_token_allows(door: TextDoor) -> None:
    longest = max(door._tokenizer.get_vocab(), key=len)
    assert door.longest_token_characters == len(longest)
    assert len(door.encode(longest * 10)) == 10
    assert len(door.encode("x" * 1000)) * door.longest_token_characters >= 1000


def test_a_chat_ends_where_the_assistant_begins(plain: TextDoor) -> None:
    text = plain.render_chat([USER])
    assert (
        plain.decode(plain.encode(text, rendered=True))
        == text
        == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_tools_are_told_to_the_model(door: TextDoor) -> None:
    assert "get_weather" in door.render_chat([USER], TOOLS)
    assert "get_weather" not in door.render_chat([USER], [])


def test_what_the_template_cannot_render_names_the_messages(door: TextDoor) -> None:
    with pytest.raises(InputError, match=r"^messages: .*template"):
        door.render_chat([{"role": "user", "content": {"no": "text"}}])


def test_without_a_template_there_is_no_chat(word_piece: TextDoor) -> None:
    assert not word_piece.has_chat_template
    with pytest.raises(InputError, match=r"^messages: .*no chat template"):
        word_piece.render_chat([USER])


def test_names_that_steer_the_rendering_are_reserved() -> None:
    assert {"tokenize", "add_generation_prompt", "chat_template", "tools", "messages"} <= RESERVED_TEMPLATE_ARGUMENTS


def test_many_threads_may_tokenize_at_once(plain: TextDoor) -> None:
    def work(number: int) -> bool:
        text = f"{number} " * 50
        return plain.decode(plain.encode(text)) == text and bool(plain.render_chat([USER]))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))


# Detokenizing


@settings(deadline=None)
@given(text=st.text(max_size=40))
def test_characters_come_whole_and_in_order(plain: TextDoor, text: str) -> None:
    pieces = [joined(found) for found in read(plain.open_stream(), plain.encode(text))]
    assert "".join(pieces) == text
    for piece in pieces:
        assert piece.isascii() or len(piece) == 1


@settings(deadline=None)
@given(tokens=st.lists(st.integers(0, 259), max_size=30))
def test_any_tokens_decode_as_the_tokenizer_decodes_them(plain: TextDoor, tokens: list[int]) -> None:
    assert plain.decode(tokens) == plain._tokenizer.decode(tokens)
    assert b"".join(plain.token_bytes(token) for token in tokens).decode("utf-8", "replace") == plain.decode(tokens)


def test_a_character_that_is_cut_off_is_dropped(plain: TextDoor) -> None:
    tokens = plain.encode("a\N{GRINNING FACE}")[:-1]
    for finish in ("length", "stop"):
        assert joined(segments(plain.open_stream(), tokens, finish)) == "a"


def test_bytes_that_are_no_character_are_replaced(plain: TextDoor) -> None:
    (broken,) = (token for token in range(260) if plain.token_bytes(token) == b"\xff")
    assert joined(segments(plain.open_stream(), [broken, *plain.encode("a")])) == "\ufffda"
    assert plain.token_text(broken) == "\ufffd"


def test_rows_beyond_the_vocabulary_have_no_text(plain: TextDoor, sentence_piece: TextDoor) -> None:
    assert plain.token_bytes(5000) == sentence_piece.token_bytes(5000) == b""


def test_a_leading_space_stays_in_a_text_completion(plain: TextDoor, sentence_piece: TextDoor) -> None:
    for door, tokens in ((plain, plain.encode(" a")), (sentence_piece, [2, 3])):
        assert joined(segments(door.open_stream(markers=False), tokens))[0] == " "


def test_sentence_pieces(sentence_piece: TextDoor) -> None:
    smile = [5 + byte for byte in "\N{GRINNING FACE}".encode()]
    tokens = [2, 3, 4, *smile]
    assert sentence_piece.decode(tokens) == " Hello world!\N{GRINNING FACE}"
    found = [joined(part) for part in read(sentence_piece.open_stream(), tokens)]
    assert found == ["Hello", " world", "!", "", "", "", "\N{GRINNING FACE}"]


def test_word_pieces(word_piece: TextDoor) -> None:
    assert joined(segments(word_piece.open_stream(), [1, 2, 3])) == "hello world" == word_piece.decode([1, 2, 3])
    assert word_piece.token_bytes(3) == b"world"


# Stop strings


def cut(text: str, stop: Sequence[str]) -> str | None:
    """`text` before the first stop string to be complete, read character by character."""
    for end in range(len(text) + 1):
        found = [at for string in stop if (at := text[:end].find(string)) >= 0]
        if found:
            return text[: min(found)]
    return None


@settings(deadline=None)
@given(text=st.text("ab\u00e9", max_size=30), stop=st.lists(st.text("ab\u00e9", min_size=1, max_size=4), max_size=4))
def test_a_stop_string_ends_the_text_before_it(plain: TextDoor, text: str, stop: list[str]) -> None:
    stream = plain.open_stream(stop)
    given_out = joined(segments(stream, plain.encode(text)))
    expected = cut(text, stop)
    assert given_out == (text if expected is None else expected)
    assert stream.stopped == (expected is not None)
    assert stream.settled_characters == len(given_out)


def test_what_may_become_a_stop_string_is_held_back(plain: TextDoor) -> None:
    stream = plain.open_stream(["END"])
    assert [joined(found) for found in read(stream, plain.encode("aENaE"), "stop")] == ["a", "", "", "ENa", "", "E"]
    assert not stream.stopped


def test_nothing_follows_a_stop_string(plain: TextDoor) -> None:
    stream = plain.open_stream(["."])
    assert joined(segments(stream, plain.encode("a.b.c"))) == "a"
    assert stream.feed(10) == []


def test_stop_strings_count_in_reasoning_and_calls_too(door: TextDoor) -> None:
    stream = door.open_stream(["STOP"], TOOLS)
    found = segments(stream, door.encode("<think>one STOP two"))
    assert (stream.stopped, joined(found, "reasoning")) == (True, "one ")


# Reasoning and tool calls


def test_reasoning_is_told_from_content(door: TextDoor) -> None:
    found = segments(door.open_stream(), door.encode("<think>Hm.</think>Yes < no"), "stop")
    assert (joined(found, "reasoning"), joined(found)) == ("Hm.", "Yes < no")


@pytest.mark.parametrize(
    ("prompt", "kind"), [("x<think>\n", "reasoning"), ("<think></think>", "content"), ("x", "content")]
)
def test_the_prompt_decides_whether_an_answer_begins_with_reasoning(door: TextDoor, prompt: str, kind: str) -> None:
    found = segments(door.open_stream(prompt_tokens=door.encode(prompt)), door.encode("abc"))
    assert joined(found, kind) == "abc"


def test_a_text_completion_is_all_content(door: TextDoor) -> None:
    text = "<think>a</think><tool_call>{}</tool_call>"
    assert joined(segments(door.open_stream(markers=False), door.encode(text))) == text


@pytest.mark.parametrize("spelt_out", [False, True])
def test_a_tool_call_comes_whole(door: TextDoor, spelt_out: bool) -> None:
    text = f"So:<tool_call>{CALL}</tool_call>"
    tokens = [door.encode(character)[0] for character in text] if spelt_out else door.encode(text)
    content, call = joined(found := segments(door.open_stream((), TOOLS), tokens, "stop")), found[-1]
    assert content == "So:"
    assert (call.kind, call.text) == ("tool_call", f"<tool_call>{CALL}</tool_call>")
    assert call.tool_call is not None
    assert (call.tool_call.name, json.loads(call.tool_call.arguments)) == ("get_weather", {"city": "Paris"})


def test_several_calls_come_one_by_one(door: TextDoor) -> None:
    text = f"<tool_call>{CALL}</tool_call>\n" * 2
    kinds = [segment.kind for segment in segments(door.open_stream((), TOOLS), door.encode(text), "stop")]
    assert kinds == ["tool_call", "content", "tool_call", "content"]


def test_a_call_that_is_cut_off_is_dropped(door: TextDoor) -> None:
    tokens = door.encode(f"So:<tool_call>{CALL}")
    assert segments(door.open_stream((), TOOLS), tokens) == [Segment("content", c) for c in "So:"]


def test_a_call_that_the_model_leaves_open_is_read_as_it_is(door: TextDoor) -> None:
    found = segments(door.open_stream((), TOOLS), door.encode(f"<tool_call>{CALL}"), "stop")
    assert [segment.kind for segment in found] == ["tool_call"]


@pytest.mark.parametrize(
    "inside",
    [
        "{",
        "[]",
        "5",
        '"x"',
        "{}",
        '{"name": 5}',
        '{"name": "f", "arguments": 5}',
        '{"name": "f", "arguments": {"a": NaN}}',
    ],
)
def test_what_is_no_call_stays_visible(door: TextDoor, inside: str) -> None:
    text = f"<tool_call>{inside}</tool_call>"
    found = segments(door.open_stream((), TOOLS), door.encode(text), "stop")
    assert found == [Segment("content", text)]


def test_without_tools_a_call_is_text(door: TextDoor) -> None:
    text = f"<tool_call>{CALL}</tool_call>"
    assert joined(segments(door.open_stream(), door.encode(text), "stop")) == text


@settings(deadline=None)
@given(
    text=st.lists(st.sampled_from([*MARKERS, CALL, "{", "a", "\u00e9", "<", "\n"]), max_size=8).map("".join),
    tools=st.booleans(),
    finish=st.sampled_from(["stop", "length"]),
)
def test_no_text_breaks_a_stream(door: TextDoor, text: str, tools: bool, finish: Finish) -> None:
    tokens = door.encode(text) or [4]
    found = segments(door.open_stream(("\u00e9{",), TOOLS if tools else None), tokens, finish)
    assert all(segment.text for segment in found)
    assert all((segment.kind == "tool_call") == (segment.tool_call is not None) for segment in found)
