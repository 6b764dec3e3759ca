"""The dashboard costs a head nothing until somebody looks."""

from __future__ import annotations

import subprocess
import sys

from starlette.applications import Starlette
from starlette.testclient import TestClient

from dashboard.hostile import HostileHead
from kakeya_ops.dashboard.mount import dashboard
from kakeya_ops.openai_api.keys import ApiKeys
from kakeya_ops.openai_api.settings import ApiSettings


def test_a_stranger_starts_nothing() -> None:
    settings = ApiSettings(keys=ApiKeys({"sesame-sesame-sesame": "one"}))
    with dashboard(HostileHead(), settings) as routes, TestClient(Starlette(routes=list(routes))) as client:
        assert client.get("/", follow_redirects=False).status_code == 303
        [door] = routes
        assert not door._page.started  # type: ignore[attr-defined]


def test_a_head_that_nobody_looks_at_does_not_even_import_the_page() -> None:
    program = "import sys; import kakeya_ops.dashboard.mount; print('nicegui' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"
