from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from kakeya_ops.bench import mlx_lm_server as module
from kakeya_ops.bench.mlx_lm_server import check_room, mlx_lm_server
from kakeya_ops.errors import EnvironmentFault, InputError, RefusedError

STUB = """\
#!{python}
import http.server, sys
if "--broken" in sys.argv:
    sys.exit("cannot load the model")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *_): pass
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of the interpreter that would run mlx-lm: something that answers and can be ended."""
    path = tmp_path / "python"
    path.write_text(STUB.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(path))
    return path


def children() -> set[int]:
    return {child.pid for child in psutil.Process(os.getpid()).children()}


def test_it_runs_within_the_block_and_no_longer(program: Path, tmp_path: Path) -> None:
    before = children()
    with mlx_lm_server(tmp_path) as server:
        assert len(children() - before) == 1
        assert server.url.startswith("http://127.0.0.1:")
    assert children() == before


def test_it_is_ended_when_the_block_fails(program: Path, tmp_path: Path) -> None:
    before = children()
    with pytest.raises(ZeroDivisionError), mlx_lm_server(tmp_path):
        raise ZeroDivisionError
    assert children() == before


def test_one_that_ends_early_is_told_with_its_words(program: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="ended with code 1: cannot load"), mlx_lm_server(tmp_path, ["--broken"]):
        pass


def test_one_that_never_answers_is_given_up(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START_SECONDS", 0.0)
    monkeypatch.setattr(module, "_answers", lambda server: False)
    with pytest.raises(EnvironmentFault, match="did not answer"), mlx_lm_server(tmp_path):
        pass


def test_room_is_wanted_for_the_weights(tiny_llama: Path, tmp_path: Path) -> None:
    check_room(tiny_llama)
    with pytest.raises(RefusedError, match="are free"):
        check_room(tiny_llama, lambda: 1000)
    with pytest.raises(InputError, match="holds no model"):
        check_room(tmp_path)


def test_without_mlx_lm_there_is_nothing_to_compare_with(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="not installed"):
        check_room(tiny_llama)
