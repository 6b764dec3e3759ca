from __future__ import annotations

import io
import threading
import time

import pytest

from kakeya_ops.views.deploy_screen import deploy_screen
from kakeya_ops.views.printer import Printer


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_steps_of_several_hosts_at_once_are_all_told(kind: type[io.StringIO]) -> None:
    out = kind()
    together = threading.Barrier(3)

    with deploy_screen(Printer(stderr=out)) as screen:

        def work(host: str) -> None:
            with screen.step(host, "install"):
                together.wait(10)

        threads = [threading.Thread(target=work, args=(host,)) for host in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        screen.note("", "over")
    for line in ("a: install (", "b: install (", "c: install (", "over"):
        assert line in out.getvalue()


def test_a_step_that_fails_is_not_told_as_done() -> None:
    out = io.StringIO()
    with deploy_screen(Printer(stderr=out)) as screen, pytest.raises(ZeroDivisionError), screen.step("a", "install"):
        raise ZeroDivisionError
    assert "install" not in out.getvalue()


def test_a_transfer_is_told_in_few_lines_without_a_terminal() -> None:
    out = io.StringIO()
    with deploy_screen(Printer(stderr=out)) as screen, screen.transfer("a", "model", 4 * 2**20) as show:
        for done in range(0, 4 * 2**20 + 1, 2**16):
            show(done)
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[-1].strip() == "a: model: 4.0 MiB of 4.0 MiB"


def test_a_transfer_has_a_bar_with_rate_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out, pause, deadline = Terminal(), threading.Event(), time.monotonic() + 10
    with deploy_screen(Printer(stderr=out)) as screen, screen.transfer("a", "model", 2**20) as show:
        show(2**19)
        while "0.5/1.0 MiB" not in out.getvalue():
            assert time.monotonic() < deadline, out.getvalue()
            pause.wait(0.02)
    assert "a: model" in out.getvalue()
