from __future__ import annotations

import pytest

from kakeya_ops.errors import InputError
from kakeya_ops.launchd import launchctl
from kakeya_ops.launchd.domain import Domain, Service
from mac.host import MacHost

DOMAIN = Domain("gui", 501)
SERVICE = Service(DOMAIN, "dev.kakeya.home.allens")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (launchctl.bootstrap(DOMAIN, "/Users/a b/x.plist"), ["bootstrap", "gui/501", "/Users/a b/x.plist"]),
        (launchctl.bootout(SERVICE), ["bootout", "gui/501/dev.kakeya.home.allens"]),
        (launchctl.enable(SERVICE), ["enable", "gui/501/dev.kakeya.home.allens"]),
        (launchctl.kickstart(SERVICE), ["kickstart", "gui/501/dev.kakeya.home.allens"]),
        (launchctl.print_service(SERVICE), ["print", "gui/501/dev.kakeya.home.allens"]),
    ],
)
def test_each_call_is_an_argv(argv: launchctl.Argv, words: list[str]) -> None:
    assert argv == ("launchctl", *words)


@pytest.mark.parametrize("path", ["x.plist", "", "~/x.plist", "file:///x.plist", "-x"])
def test_a_plist_is_named_by_its_whole_path(path: str) -> None:
    with pytest.raises(InputError):
        launchctl.bootstrap(DOMAIN, path)


def test_no_call_is_misused(mac: MacHost) -> None:
    domain = Domain("gui", mac.state.own_uid)
    service = Service(domain, SERVICE.label)
    calls = [
        launchctl.bootstrap(domain, "/nowhere.plist"),
        launchctl.bootout(service),
        launchctl.enable(service),
        launchctl.kickstart(service),
        launchctl.print_service(service),
    ]
    assert [mac.run(*call).returncode for call in calls] == [2, 3, 0, 113, 113]
