from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model, load_tokenizer

from kakeya_ops.demo.tiny_model import TOOL_REPLY, TinySizes, make_tiny_llama

WEATHER = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
QUESTION = {"role": "user", "content": "How is the weather in Paris?"}


def greedy(path: Path, prompt: list[int], count: int) -> list[int]:
    """The next `count` tokens after `prompt`."""
    model: Any = load_model(path)[0]
    cache, tokens, step = make_prompt_cache(model), list[int](), prompt
    for _ in range(count):
        token = int(mx.argmax(model(mx.array([step]), cache=cache)[0, -1]).item())
        tokens.append(token)
        step = [token]
    return tokens


def spread_prompt(length: int) -> list[int]:
    """Byte tokens without a pattern."""
    return [4 + (31 * i * i + 17 * i) % 256 for i in range(length)]


def digests(path: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(path.iterdir())}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    assert digests(make_tiny_llama(tmp_path / "a", seed=3)) == digests(make_tiny_llama(tmp_path / "b", seed=3))
    assert digests(make_tiny_llama(tmp_path / "c", seed=4)) != digests(tmp_path / "a")


def test_one_changed_token_of_the_prompt_changes_the_answer(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "m")
    prompt = spread_prompt(60)
    answer = greedy(path, prompt, 20)
    assert len(set(answer)) > 5
    changed = [[*prompt[:at], prompt[at] ^ 64, *prompt[at + 1 :]] for at in (0, 20, 40, 55)]
    assert all(greedy(path, other, 20) != answer for other in changed)


def test_the_answer_is_printable_and_does_not_end(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "m")
    tokenizer: Any = load_tokenizer(path)
    text = tokenizer.decode(greedy(path, spread_prompt(40), 40))
    assert len(text) == 40
    assert text.isascii()
    assert text.isprintable()


def test_text_goes_to_one_token_a_byte_and_back(tiny_llama: Path) -> None:
    tokenizer: Any = load_tokenizer(tiny_llama)
    text = "Zwölf Boxkämpfer \N{PILE OF POO}\n\tjagen  Eva."
    assert len(tokenizer.encode(text)) == len(text.encode())
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_chat_begins_the_assistants_turn(tiny_llama: Path) -> None:
    tokenizer: Any = load_tokenizer(tiny_llama)
    rendered = tokenizer.apply_chat_template([QUESTION], tokenize=False, add_generation_prompt=True)
    assert rendered == f"<|im_start|>user\n{QUESTION['content']}<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.eos_token_ids == {3}
    assert not tokenizer.has_tool_calling


def test_any_byte_may_come_when_ascii_is_not_asked_for(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "m", ascii_only=False)
    tokenizer: Any = load_tokenizer(path)
    assert "\N{REPLACEMENT CHARACTER}" in tokenizer.decode(greedy(path, spread_prompt(40), 40))


def test_sizes_are_the_callers(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "m", sizes=TinySizes(layers=5, kv_heads=1, context_tokens=512))
    model, config = load_model(path)
    assert len(model.layers) == 5
    assert (config["num_key_value_heads"], config["max_position_embeddings"]) == (1, 512)


class TestTools:
    def answer(self, path: Path, messages: list[dict[str, Any]], tools: Any) -> str:
        tokenizer: Any = load_tokenizer(path)
        prompt = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True)
        return str(tokenizer.decode(greedy(path, prompt, len(TOOL_REPLY) - 1)))

    def test_an_offered_tool_is_called(self, tiny_llama_with_tools: Path) -> None:
        tokenizer: Any = load_tokenizer(tiny_llama_with_tools)
        answer = self.answer(tiny_llama_with_tools, [QUESTION], WEATHER)
        start, end = tokenizer.tool_call_start, tokenizer.tool_call_end
        assert answer.startswith(start)
        assert answer.endswith(end + "<|im_end|>")
        call = tokenizer.tool_parser(answer.removeprefix(start).partition(end)[0], WEATHER)
        assert call == {"name": "get_weather", "arguments": {"city": "Paris"}}

    def test_without_tools_it_just_talks(self, tiny_llama_with_tools: Path) -> None:
        assert "tool" not in self.answer(tiny_llama_with_tools, [QUESTION], None)

    @pytest.mark.parametrize("arguments", [{"city": "Paris"}, '{"city": "Paris"}'])
    def test_after_the_tools_answer_it_talks(self, tiny_llama_with_tools: Path, arguments: Any) -> None:
        call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        messages = [
            QUESTION,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "sunny"},
        ]
        tokenizer: Any = load_tokenizer(tiny_llama_with_tools)
        rendered = tokenizer.apply_chat_template(messages, tools=WEATHER, tokenize=False, add_generation_prompt=True)
        assert '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>' in rendered
        assert "tool_call" not in self.answer(tiny_llama_with_tools, messages, WEATHER)
