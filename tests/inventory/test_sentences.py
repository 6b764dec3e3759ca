from __future__ import annotations

import pytest

from kakeya_ops.inventory.findings import Location
from kakeya_ops.inventory.sections import Api, Endpoint, Host, Ssh, SshDefaults
from kakeya_ops.inventory.sentences import known_keys, render_value


@pytest.mark.parametrize(
    ("location", "section"),
    [
        (("hosts", "any"), Host),
        (("hosts", "any", "api"), Api),
        (("hosts", "any", "ssh"), Ssh),
        (("defaults", "ssh"), SshDefaults),
        (("hosts", "any", "endpoints", 3), Endpoint),
    ],
)
def test_which_keys_are_known_where(location: Location, section: type[Host]) -> None:
    assert known_keys(location) == tuple(section.model_fields)


@pytest.mark.parametrize(
    "location", [("hosts",), ("groups", "a"), ("no", "such", "place"), ("fleet", "name", "x"), (3,)]
)
def test_where_there_is_no_section_there_are_no_keys(location: Location) -> None:
    assert known_keys(location) == ()


def test_values_are_shown_as_yaml_has_them_and_short() -> None:
    shown = [render_value(value) for value in (None, True, False, 1.5, "a", {"a": 1}, (1,), "x" * 100)]
    assert shown[:7] == ["null", "true", "false", "1.5", "'a'", "a mapping", "a list"]
    assert len(shown[7]) == 60
