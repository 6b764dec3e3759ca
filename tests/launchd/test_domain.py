from __future__ import annotations

import pytest

from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.launchd.domain import (
    Domain,
    Preference,
    Service,
    candidate_domains,
    check_label,
    choose_domain,
    parse_domain,
    service_label,
)

GUI, USER = Domain("gui", 501), Domain("user", 501)


@pytest.mark.parametrize(
    ("console", "preference", "gui_exists", "user_exists", "domain", "why"),
    [
        (501, "auto", True, True, GUI, "uid 501 is logged in at the screen"),
        (0, "auto", False, True, USER, "uid 501 is not logged in at the screen"),
        (502, "auto", False, True, USER, "uid 501 is not logged in at the screen, uid 502 is"),
        (502, "auto", True, True, USER, "uid 501 is logged in, but the screen belongs to uid 502"),
        (502, "auto", True, False, GUI, "the user domain does not exist"),
        (0, "gui", True, True, GUI, "the inventory says domain: gui"),
        (501, "user", True, True, USER, "the inventory says domain: user"),
    ],
)
def test_the_screen_decides_unless_the_inventory_does(
    console: int, preference: Preference, gui_exists: bool, user_exists: bool, domain: Domain, why: str
) -> None:
    choice = choose_domain(console, 501, preference, gui_exists, user_exists)
    assert (choice.domain, choice.reason) == (domain, why)


@pytest.mark.parametrize(
    ("preference", "gui_exists", "user_exists", "missing"),
    [("gui", False, True, "gui/501"), ("user", True, False, "user/501"), ("auto", False, False, "gui/501")],
)
def test_a_domain_that_does_not_exist_is_refused(
    preference: Preference, gui_exists: bool, user_exists: bool, missing: str
) -> None:
    with pytest.raises(EnvironmentFault, match=missing) as raised:
        choose_domain(0, 501, preference, gui_exists, user_exists)
    assert raised.value.hint


def test_root_at_nobodys_screen_is_not_at_it() -> None:
    assert choose_domain(0, 0, "auto", False, True).domain == Domain("user", 0)


def test_targets() -> None:
    assert Service(GUI, "dev.kakeya.home.allens").target == "gui/501/dev.kakeya.home.allens"
    assert (GUI.session_type, USER.session_type) == ("Aqua", "Background")
    assert candidate_domains(501) == (GUI, USER)


@pytest.mark.parametrize("domain", [GUI, USER])
def test_a_recorded_domain_is_read_again(domain: Domain) -> None:
    assert parse_domain(domain.target) == domain
    assert parse_domain(f"{domain.target}/") == domain


@pytest.mark.parametrize("target", ["system", "gui/", "gui/x", "gui/501/dev.x", "gui/01", "login/1", "", "gui/501\n"])
def test_other_targets_are_refused(target: str) -> None:
    with pytest.raises(InputError):
        parse_domain(target)


def test_a_label_names_fleet_and_host() -> None:
    assert service_label("home", "allens-2") == "dev.kakeya.home.allens-2"


@pytest.mark.parametrize(
    "label",
    ["", "one", "a.b/c", "a..b", ".a.b", "a.b.", "-a.b", "a. b", "a.b\n", "a.b;c", "a.$b", "ä.b", "a.b" + "c" * 200],
)
def test_a_label_that_means_more_is_refused(label: str) -> None:
    with pytest.raises(InputError):
        check_label(label)
    with pytest.raises(InputError):
        Service(GUI, label)


@pytest.mark.parametrize(("fleet", "host"), [("Home", "allens"), ("home", "a.b"), ("home", ""), ("a/b", "c")])
def test_a_label_is_made_of_plain_names(fleet: str, host: str) -> None:
    with pytest.raises(InputError):
        service_label(fleet, host)
