"""Every family under an arithmetic whose rounding depends on the shape of a call, as a GPU's does.

It must be preloaded, so it runs in a process of its own, once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from family_runs import SETTINGS
from system_packages import require
from tiny_models import FAMILIES

TESTS = Path(__file__).parents[1]
LARGEST_BATCH_DEVIATION = 1e-4
"""Of the spread of the log-probabilities, between a sequence alone and in a batch; about 1e-5 was measured."""

pytestmark = [pytest.mark.system("openblas"), pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """What `families_under_openblas.py` printed."""
    environment = os.environ | {
        "LD_PRELOAD": str(require("openblas")),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS.parent))),
    }
    script = TESTS / "families_under_openblas.py"
    run = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=280)
    assert run.returncode == 0, run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    return result


@pytest.fixture(params=[f"{family}-{settings}" for family in FAMILIES for settings in SETTINGS])
def outcome(request: pytest.FixtureRequest, measured: dict[str, Any]) -> dict[str, Any]:
    """One family under one of the cache settings."""
    result: dict[str, Any] = measured["runs"][request.param]
    return result


def test_openblas_computes_on_one_thread(measured: dict[str, Any]) -> None:
    assert measured["threads"].startswith("openblas")
    assert measured["threads"].endswith(" x1")


def test_an_imported_prefix_gives_the_bits_of_a_local_run(outcome: dict[str, Any]) -> None:
    assert outcome["exact"] == [True, True]


def test_a_wrong_grid_shows_and_is_only_rounding(outcome: dict[str, Any]) -> None:
    assert 0 < outcome["wrong_grid"] < 1e-3


def test_decoding_together_stays_close_to_decoding_alone(outcome: dict[str, Any]) -> None:
    assert outcome["together"] < LARGEST_BATCH_DEVIATION
