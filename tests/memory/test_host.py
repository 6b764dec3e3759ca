"""What is not known is not there."""

from __future__ import annotations

import dataclasses

import pytest

from kakeya_ops.memory.host import Figure, HostMemory

NOTHING = Figure(None, "absent", "nobody was asked")


def test_a_host_of_which_nothing_is_known_has_no_number() -> None:
    host = HostMemory(system=None, total_bytes=NOTHING, working_set_bytes=NOTHING, max_buffer_bytes=NOTHING)
    values = {name: value for name, value in dataclasses.asdict(host).items() if name.endswith("_bytes")}
    assert len(values) == 9
    assert all(value is None or value["nbytes"] is None for value in values.values())


def test_facts_stay_as_they_were_read() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        NOTHING.nbytes = 0  # type: ignore[misc]
