from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from kakeya_ops.inventory.findings import Finding, refuse, render_location


def test_a_location_is_written_as_people_do() -> None:
    assert render_location(()) == ""
    assert render_location(("hosts", "allens", "endpoints", 0, "port")) == "hosts.allens.endpoints[0].port"


def test_all_findings_are_in_one_error_and_none_is_no_error() -> None:
    refuse([])
    found = [Finding(("a",), "is {odd}"), Finding(("b", 1), "is too")]
    with pytest.raises(PydanticCustomError, match=r"a: is \{odd\}; b\[1\]: is too") as caught:
        refuse(found)
    assert caught.value.context is not None
    assert caught.value.context["findings"] == found
