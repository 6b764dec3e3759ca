"""Who else takes memory, and who of them serves models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.memory.processes import LARGE_BYTES, MOST_PROCESSES, parse_processes

MIB = 2**20
FRAMEWORK = "/opt/homebrew/Cellar/python@3.12/3.12.7/Frameworks/Python.framework/Versions/3.12/Resources/Python.app"
TOP = "Processes: 3 total\nPhysMem: 15G used\n\nPID    MEM  \n"


def only(line: str) -> tuple[str, bool, bool]:
    """Name, whether it serves models and whether it is ours, of one process."""
    found = parse_processes(f"  7 999999 {line}\n", "")
    assert found is not None
    return found[0].name, found[0].is_mlx_server, found[0].is_kakeya


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("/usr/local/bin/python3.12 -m mlx_lm.server --model x", "mlx_lm.server"),
        ("/usr/local/bin/python3.12 -m mlx_lm server", "mlx_lm"),
        (f"{FRAMEWORK}/Contents/MacOS/Python /Users/f/venv/bin/mlx_lm.server --port 1", "mlx_lm.server"),
        ("python3 -X dev -m mlx_vlm.server", "mlx_vlm.server"),
        ("/Users/f/venv/bin/python /Users/f/venv/bin/mlx-omni-server", "mlx-omni-server"),
        ("uv run mlx_lm.server", "mlx_lm.server"),
        ("/opt/homebrew/bin/ollama runner --model x", "ollama"),
        ("/Applications/Ollama.app/Contents/Resources/ollama serve", "Ollama"),
        ("/Applications/LM Studio.app/Contents/MacOS/LM Studio", "LM Studio"),
        ("/Applications/LM Studio.app/Contents/Frameworks/LM Studio Helper.app/Contents/MacOS/H --x", "LM Studio"),
        ("/Users/f/.local/bin/exo", "exo"),
        ("python3.12 -m exo.main", "exo.main"),
        ("/Applications/EXO.app/Contents/MacOS/EXO", "EXO"),
        ("/Users/f/venv/bin/python -m omlx serve", "omlx"),
        ("/Users/f/venv/bin/python /Users/f/venv/bin/rapid-mlx serve", "rapid-mlx"),
        ("/Users/f/bin/mlx-serve --port 1", "mlx-serve"),
        ("/Users/f/bin/mlxcel", "mlxcel"),
        ("/Users/f/venv/bin/python -m vllm_mlx.server", "vllm_mlx.server"),
        ("/opt/homebrew/bin/llama-server -m x.gguf", "llama-server"),
    ],
)
def test_servers_of_models_are_known(line: str, name: str) -> None:
    assert only(line) == (name, True, False)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("/usr/bin/vim mlx_lm.server.txt", "vim"),
        ("/System/Library/CoreServices/Finder.app/Contents/MacOS/Finder", "Finder"),
        ("/Applications/Safari.app/Contents/MacOS/Safari", "Safari"),
        ("/usr/libexec/exogen", "exogen"),
        ("/usr/bin/python3", "python3"),
        ("/usr/bin/python3 -c import mlx", "python3"),
        ("/usr/bin/python3 /opt/tool.py --model /Models/A.app/Contents/x", "tool"),
        ("/bin/sh", "sh"),
    ],
)
def test_others_are_named_and_not_taken_for_servers(line: str, name: str) -> None:
    assert only(line) == (name, False, False)


@pytest.mark.parametrize("role", ["head", "worker", "cache"])
@pytest.mark.parametrize(
    "start",
    [
        "/r/venv/bin/python /r/venv/bin/kakeya --inventory /r/i.yaml",
        "/r/venv/bin/kakeya",
        "python -m kakeya_ops",
        "python -m kakeya_ops.cli.start --inventory i",
    ],
)
def test_our_own_nodes_are_known(start: str, role: str) -> None:
    assert only(f"{start} serve {role} allens") == (f"kakeya {role}", False, True)
    assert only(f"{start} serve --stop-at-eof {role} allens") == (f"kakeya {role}", False, True)


def test_our_own_commands_are_no_nodes() -> None:
    assert only("/r/venv/bin/python /r/venv/bin/kakeya memory allens") == ("kakeya", False, False)


def test_a_footprint_counts_where_top_tells_it_and_the_resident_set_says_that_it_is_one() -> None:
    """GPU buffers are no part of a resident set: https://al-engr.com/glm52-mlx-m3-ultra-recipe.html."""
    ps = "1 300000 a\n2 300000 b\n3 300000 c\n4 10 d\n5 300000 e\n"
    found = parse_processes(ps, TOP + "1      5212M+\n2      14G   \n3*     900K  \n4      262144K-\n")
    assert found is not None
    assert [(p.name, p.footprint_bytes, p.measure) for p in found] == [
        ("b", 14 * 1024 * MIB, "footprint"),
        ("a", 5212 * MIB, "footprint"),
        ("e", 300000 * 1024, "rss"),
        ("d", 256 * MIB, "footprint"),
    ]


def test_small_servers_are_shown_and_small_others_are_not() -> None:
    found = parse_processes("1 10 /usr/bin/ollama serve\n2 10 /bin/cat\n", "")
    assert found is not None
    assert [process.name for process in found] == ["ollama"]


def test_the_list_is_bounded() -> None:
    found = parse_processes("".join(f"{pid} 999999 x\n" for pid in range(1, 90)), "")
    assert found is not None
    assert [process.pid for process in found] == list(range(1, MOST_PROCESSES + 1))


def test_names_are_short_and_can_be_printed() -> None:
    name, _, _ = only("/bin/\x1b[31m" + "x" * 300)
    assert name == "?[31m" + "x" * 34 + "…"


@pytest.mark.parametrize("ps", ["", "\n\n", "ps: illegal option", "a b c"])
def test_without_a_line_of_a_process_nothing_is_known(ps: str) -> None:
    assert parse_processes(ps, TOP) is None


@given(
    st.text()
    | st.lists(st.sampled_from(["1 2 /a b", "3 999999 x", "PID MEM", "3 5G", "\0"]), max_size=6).map("\n".join)
)
def test_whatever_comes_is_survived(text: str) -> None:
    for process in parse_processes(text, text) or ():
        assert str(process.pid) in text
        assert process.footprint_bytes >= LARGE_BYTES or process.is_mlx_server or process.is_kakeya
        assert process.name.isprintable()
