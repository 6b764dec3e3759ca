"""Where everything lies."""

from __future__ import annotations

import pytest

from deploy.states import PLANNER_INVENTORY, inventory
from kakeya_ops.observe.places import Places, on_host


@pytest.mark.parametrize(
    ("path", "expanded"), [("~", "/h"), ("~/a", "/h/a"), ("/a/~", "/a/~"), ("~other/a", "~other/a")]
)
def test_the_tilde_is_the_home_folder_of_the_host(path: str, expanded: str) -> None:
    assert on_host(path, "/h") == expanded


def test_every_place_is_absolute_and_the_plist_is_where_launchd_looks() -> None:
    places = Places.of(inventory(), inventory().host("allens"), "/Users/a b")
    assert places.plist == "/Users/a b/Library/LaunchAgents/dev.kakeya.pair.allens.plist"
    assert places.identity == "/Users/a b/.kakeya/fleet.key.identity.json"
    for path in (places.lock, places.audit, places.log, places.current, places.generation("g"), places.program("p")):
        assert path.startswith("/Users/a b/.kakeya/")


def test_without_a_key_the_identity_lies_in_the_install_root() -> None:
    fleet = inventory(PLANNER_INVENTORY.replace("{name: pair}", "{name: pair, key_file: null}"))
    places = Places.of(fleet, fleet.host("vault"), "/h")
    assert (places.key, places.identity) == (None, "/h/.kakeya/identity.json")
