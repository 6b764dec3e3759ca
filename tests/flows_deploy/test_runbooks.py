"""Everything on every runbook, as it is printed for this fleet, in order, on simulated Macs behind real SSH.

One fleet for all of them, in any order: a page's *Undo* leaves it as it was.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flows_deploy.deployed import CheckoutProgram, Fleet, machine
from flows_deploy.reader import Act, Reader
from kakeya_ops.cli import applying, deploying
from kakeya_ops.demo.tiny_model import make_tiny_llama
from kakeya_ops.deploy.cross_check import CrossCheck
from kakeya_ops.runbook import list_pages
from kakeya_ops.serving.quarantine import Held, State
from kakeya_ops.serving.quarantine_file import QuarantineFile
from serving.findings import EVIDENCE
from sshd import write_ssh_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SHORT = {"after-a-reboot", "head-down", "slow-link", "worker-down", "wrong-output-suspected"}
"""Those that install and start the least; the others run a marathon."""
PAGES = [pytest.param(page.name, marks=[] if page.name in SHORT else [pytest.mark.marathon]) for page in list_pages()]
PATIENT_SECONDS = 100.0


@pytest.fixture(scope="module")
def fleet(operator_home: Path, tiny_llama: Path) -> Iterator[Fleet]:
    """A worker and a head that nothing is installed on yet, and an ssh that finds them."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        names = ("allens", "head")
        machines = {
            name: stack.enter_context(machine(operator_home, name, bridge_address="127.0.0.1")) for name in names
        }
        config = operator_home / "ssh_config"
        config.write_text("".join(one.config.read_text() for one in machines.values()))
        patch.setenv("PATH", str(write_ssh_program(operator_home / "programs", config)), prepend=":")
        patch.setattr(deploying, "find_program", CheckoutProgram)
        patch.setattr(applying, "CrossCheck", partial(CrossCheck, seconds=PATIENT_SECONDS))
        yield Fleet(operator_home, tiny_llama, machines, {"allens": "worker", "head": "head"})


@pytest.fixture(scope="module")
def reader(fleet: Fleet) -> Reader:
    """Reads the pages."""
    reader = Reader(fleet, ACTS)
    reader.stay_on_loopback()
    return reader


@pytest.fixture(scope="module")
def wanted(fleet: Fleet, reader: Reader) -> Mapping[str, Any]:
    """The inventory as it is to be before and after each page."""
    return copy.deepcopy(fleet.document)


@pytest.fixture
def begun(reader: Reader, fleet: Fleet, wanted: Mapping[str, Any], page: str) -> None:
    """The fleet as a page finds it: deployed as it is wanted, unless the page says otherwise."""
    fleet.document = copy.deepcopy(dict(wanted))
    fleet.change("hosts")
    BEFORE.get(page, deploy_all)(reader)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("begun")
def test_everything_on_a_page_does_what_the_page_states(page: str, reader: Reader) -> None:
    reader.follow(page, HOSTS.get(page))


def kakeya(reader: Reader, *words: str) -> None:
    done = reader.run("kakeya", "--inventory", str(reader.fleet.path), *words)
    assert done.exit_code == 0, done.output


def deploy_all(reader: Reader) -> None:
    kakeya(reader, "deploy", "all", "--yes")
    reader.meet()


def undeploy(reader: Reader, *names: str) -> None:
    if found := [name for name in names if reader.runs(name)]:
        kakeya(reader, "undeploy", *found, "--yes")


def have_nothing(reader: Reader) -> None:
    """Nothing is installed, and there is no key and no inventory that `kakeya init` would write over."""
    undeploy(reader, "allens", "head")
    (reader.fleet.folder / "operator/.kakeya/fleet.key").unlink()


def have_a_head(reader: Reader) -> None:
    """Nobody has heard of allens."""
    undeploy(reader, "allens")
    remove_allens(reader.fleet)
    deploy_all(reader)


def have_another_model(reader: Reader) -> None:
    """A model beside the one that is served."""
    deploy_all(reader)
    make_tiny_llama(Path(f"{reader.fleet.model}-new"), tools=True)


def put_allens_into_quarantine(fleet: Fleet) -> None:
    """The head has found something, and will read it again when it starts anew."""
    file = QuarantineFile(fleet.machines["head"].mac.home / ".kakeya/quarantine.json")
    file.save(State("ab" * 16, (Held("allens", 1.0, EVIDENCE),)))


def remove_allens(fleet: Fleet) -> None:
    del fleet.document["hosts"]["allens"]
    fleet.change("hosts")


HOSTS = {"add-a-worker": "allens"}
"""Whom a page is asked for about, where that is not the first that it may be about."""
BEFORE: Mapping[str, Callable[[Reader], None]] = {
    "add-a-worker": have_a_head,
    "change-the-model": have_another_model,
    "first-fleet": have_nothing,
}
"""What has happened when somebody looks for a page."""
ACTS: Mapping[tuple[str, int], Act] = {
    ("add-a-worker", 7): remove_allens,
    ("first-fleet", 0): lambda fleet: fleet.path.unlink(),
    ("wrong-output-suspected", 4): put_allens_into_quarantine,
    ("upgrade-and-rollback", 0): lambda fleet: fleet.change_host("allens", queue=17),
}
"""What the prose of a page asks for, by the page and the number of the command that comes next."""
