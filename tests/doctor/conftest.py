"""The simulated Mac that this machine is while a test runs, on a network on which nobody answers."""

from __future__ import annotations

import pytest

from mac.host import MacHost
from observe.conftest import mac

__all__ = ["mac"]


@pytest.fixture(autouse=True)
def _nobody_answers(request: pytest.FixtureRequest) -> None:
    if "mac" in request.fixturenames:
        host: MacHost = request.getfixturevalue("mac")
        host.add_tool("curl", "#!/bin/sh\nexit 7\n")
