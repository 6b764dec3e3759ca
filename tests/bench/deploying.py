"""Measures `kakeya deploy` on many hosts against one host, and against ansible-core doing the same, and prints ratios.

    python tests/bench/deploying.py [--hosts N] [--rounds N] [--only nothing|plist] [--ansible VERSION]

Hosts are real OpenSSH servers on loopback, each in front of a simulated Mac with a node that serves. What launchd
starts here only holds a connection to the head, as deploy demands of a node's process, and the nodes run beside it all
the time: what a server needs to start is not measured.

nothing to do  `kakeya deploy --check` of all hosts to that of one, as a person types it, over lines with a round trip
               of 50 ms. What the simulated programs print was recorded, since an interpreter for each would be measured
               otherwise.
a new plist    the same change of every property list by `kakeya deploy --yes --parallel N` and by `ansible-playbook
               --forks N`, in two rows. *The exchange alone*: of what Kakeya does, ansible does no more than copy,
               bootout, wait until gone, bootstrap. *The same job*: as much of what Kakeya does as `copy` and `command`
               can do, which is to look at the service, lock the host, keep a generation, check the list, exchange it,
               wait for a process and for health, turn the links, and write an audit log. Neither has the rest: reading
               the host's other facts, the host's own watch over the exchange, the signed card with its cache identity,
               the checks between nodes in both directions, and the way back. What simulated programs other than
               launchctl, plutil, ps and lsof print was recorded here too, for both sides. Ansible is installed into a
               folder of the measurement.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import yaml
from lag import lagging
from results import Measure, render_table

from flows_deploy.deployed import ROOT, Fleet, Machine, machine
from kakeya_ops.demo.tiny_model import make_tiny_llama
from kakeya_ops.deploy.material import program_folder_id
from kakeya_ops.deploy.program import MARK, find_program
from sshd import write_ssh_program
from waiting import wait_until

HEAD = "head"
_ROUND_TRIP_SECONDS = 0.05
_SERVICE = """
import socket, time
while True:
    with socket.create_connection(("127.0.0.1", %d)) as connection:
        connection.recv(1)
    time.sleep(0.1)
"""
_STATEFUL = ("launchctl", "plutil", "ps", "lsof")
_EXCHANGE = """
- hosts: all
  gather_facts: false
  tasks:
    - copy: {src: "{{ plist }}", dest: "{{ target }}", mode: "0644"}
    - command: launchctl bootout {{ service }}
    - command: launchctl print {{ service }}
      register: service_state
      until: service_state.rc == 113
      failed_when: service_state.rc != 113
      retries: 100
      delay: 0
    - command: launchctl bootstrap {{ domain }} {{ target }}
"""
_SAME_JOB = """
- hosts: all
  gather_facts: false
  tasks:
    - command: launchctl print {{ service }}
    - command: mkdir {{ root }}/lock
    - command: mkdir -p -m 700 {{ root }}/generations/{{ generation }}
    - copy: {src: "{{ current }}/{{ item }}", dest: "{{ root }}/generations/{{ generation }}/{{ item }}", mode: "0600"}
      loop: [inventory.yaml, identity.json, generation.json]
    - copy: {src: "{{ plist }}", dest: "{{ root }}/generations/{{ generation }}/service.plist", mode: "0600"}
    - command: plutil -lint {{ root }}/generations/{{ generation }}/service.plist
    - command: launchctl bootout {{ service }}
    - command: launchctl print {{ service }}
      register: service_state
      until: service_state.rc == 113
      failed_when: service_state.rc != 113
      retries: 100
      delay: 0
    - copy: {src: "{{ plist }}", dest: "{{ target }}", mode: "0644"}
    - command: launchctl enable {{ service }}
    - command: launchctl bootstrap {{ domain }} {{ target }}
    - command: launchctl print {{ service }}
      register: started
      until: "'pid = ' in started.stdout"
      retries: 100
      delay: 0
    - command: curl --silent --fail {{ health }}
      register: answered
      until: answered.rc == 0
      retries: 100
      delay: 0
    - command: ln -sfn generations/{{ generation }} {{ root }}/current
    - command: sh -c 'echo deployed {{ generation }} >> {{ root }}/audit.jsonl'
    - command: rm -rf {{ root }}/lock
"""


@dataclass
class Field:
    """The fleet that is deployed to, and how a person at its head's terminal gets there."""

    fleet: Fleet
    names: list[str]
    folder: Path
    changes: int = 0

    @property
    def machines(self) -> Mapping[str, Machine]:
        return self.fleet.machines

    @property
    def ports(self) -> dict[str, int]:
        """At which port each host's SSH server listens."""
        return {name: machine.server.port for name, machine in self.machines.items()}

    def write_config(self, name: str, ports: Mapping[str, int]) -> dict[str, str]:
        """The environment in which ssh finds each host at its port of `ports`."""
        parts = []
        for host, port in ports.items():
            server = self.machines[host].server
            server.known_hosts.write_text(server.known_line() + server.known_line(port=port))
            parts.append(server.write_config(host, f"{name}_config", Port=port).read_text())
        config = self.folder / f"{name}_config"
        config.write_text("".join(parts))
        programs = write_ssh_program(self.folder / name, config)
        home = str(self.folder / "operator")
        path = f"{programs}{os.pathsep}{os.defpath}"
        return {"HOME": home, "PATH": path, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    def want_another(self) -> str:
        """Change what every property list is to say; the new value."""
        self.changes += 1
        value = f"change {self.changes}"
        self.fleet.change("defaults", environment={"BENCH": value})
        return value

    def kakeya(self, environment: dict[str, str], *words: str) -> float:
        """Run a command of kakeya that must succeed; the seconds it took."""
        argv = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(self.fleet.path), *words]
        return _run(argv, environment)


def _run(argv: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench: {argv} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return time.perf_counter() - began


@contextlib.contextmanager
def field(folder: Path, count: int) -> Iterator[Field]:
    """A fleet of `count` cache peers and a head, all serving, nothing deployed yet."""
    names = [f"n{number:02}" for number in range(1, count + 1)]
    with contextlib.ExitStack() as stack:
        machines = {name: stack.enter_context(machine(folder, name, bootout_linger_seconds=0)) for name in names}
        machines[HEAD] = stack.enter_context(machine(folder, HEAD))
        fleet = Fleet(
            folder, make_tiny_llama(folder / "tiny"), machines, {**dict.fromkeys(names, "cache"), HEAD: "head"}
        )
        fleet.change("groups", nodes=names)
        found = Field(fleet, names, folder)
        for name in (*names, HEAD):
            _prepare(fleet, name)
            stack.enter_context(_serving(found, name))
        for name in (*names, HEAD):
            _wait_healthy(fleet.ports[name])
        yield found


def _prepare(fleet: Fleet, name: str) -> None:
    """What the node on a host needs to serve, and a program that deploy finds installed there."""
    places, material = fleet.places(name), fleet.material()
    assert places.key
    assert material.key_file
    Path(places.key).parent.mkdir(parents=True)
    Path(places.key).write_bytes(material.key_file)
    Path(places.key).chmod(0o600)
    Path(places.identity).write_bytes(material.identity_document)
    folder = Path(places.program(program_folder_id(find_program().id, None)))
    programs = folder / "venv/bin"
    programs.mkdir(parents=True)
    service = f"#!{sys.executable} -IS\n{_SERVICE % fleet.ports[HEAD]}"
    (programs / "kakeya").write_text(service)
    (programs / "kakeya").chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    (folder / MARK).touch()


@contextlib.contextmanager
def _serving(found: Field, name: str) -> Iterator[None]:
    """The node of a host, as long as it lasts."""
    places, host = found.fleet.places(name), found.fleet.inventory.host(name)
    identity = ["--identity", places.identity] if host.role == "cache" else []
    serve = ["serve", host.role, name, *identity]
    argv = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(found.fleet.path), *serve]
    environment = {"HOME": places.home, "PATH": os.defpath, "PYTHONPATH": str(ROOT)}
    with (found.folder / f"{name}.log").open("wb") as log:
        node = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        node.terminate()
        node.wait()


def _wait_healthy(port: int, seconds: float = 120.0) -> None:
    """Return when the node at `port` is healthy: what launchd starts would end at a head that does not listen yet."""

    def healthy() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
            return True
        return False

    wait_until(healthy, f"health of the node at port {port}", seconds)


def measure_nothing_to_do(found: Field, rounds: int) -> Measure:
    """All hosts to one, with nothing to do on any."""
    measure = Measure(f"nothing to do: {len(found.names)} hosts to 1, 50 ms round trip", "s", "at most", 1.5)
    direct = found.write_config("direct", found.ports)
    for name in found.names:
        found.machines[name].mac.forget_calls()
    found.kakeya(direct, "deploy", "nodes", "--check")
    for name in found.names:
        found.machines[name].mac.freeze()
    with lagging(list(found.ports.values()), _ROUND_TRIP_SECONDS) as ports:
        far = found.write_config("far", dict(zip(found.ports, ports, strict=True)))
        for _ in range(rounds):
            one = found.kakeya(far, "deploy", found.names[0], "--check")
            measure.add(found.kakeya(far, "deploy", "nodes", "--check"), one)
    return measure


def measure_new_plist(found: Field, ansible: Path, rounds: int) -> list[Measure]:
    """Ansible's time to ours, for one host and for all."""
    near = found.write_config("near", found.ports)
    _freeze(found, near)
    measures = []
    for names in (found.names[:1], found.names):
        for what, tasks in (("the same job", _SAME_JOB), ("the exchange alone", _EXCHANGE)):
            title = f"a new plist, hosts: {len(names)}, ansible's time for {what} to ours for all"
            measure = Measure(title, "s", "at least", 3.0, combine=lambda ours, theirs: theirs / ours)
            for _ in range(rounds):
                found.want_another()
                ours = found.kakeya(near, "deploy", *names, "--yes", "--parallel", str(len(names)))
                argv = _ansible(found, ansible, names, tasks)
                measure.add(ours, _run(argv, near))
            measures.append(measure)
    return measures


def _freeze(found: Field, environment: dict[str, str]) -> None:
    """Record what the simulated programs print that print the same all the time."""
    for name in found.names:
        found.machines[name].mac.forget_calls()
    found.want_another()
    argv = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(found.fleet.path), "deploy", "nodes"]
    subprocess.run([*argv, "--check"], env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    found.kakeya(environment, "deploy", "nodes", "--yes", "--parallel", str(len(found.names)))
    for name in found.names:
        found.machines[name].mac.freeze(but=_STATEFUL)


def _ansible(found: Field, ansible: Path, names: list[str], tasks: str) -> list[str]:
    """Ansible's call that does `tasks`, so that the property lists say something else."""
    inventory, playbook = _write_playbook(found, names, tasks, found.want_another())
    return [str(ansible / "bin/ansible-playbook"), "-i", inventory, playbook, "--forks", str(len(names))]


def _write_playbook(found: Field, names: list[str], tasks: str, value: str) -> tuple[str, str]:
    """Ansible's inventory and its playbook of `tasks`, which bring the property lists to say `value`."""
    hosts: dict[str, Any] = {}
    for name in names:
        places, mac = found.fleet.places(name), found.machines[name].mac
        plist = found.folder / f"{name}.plist"
        installed = Path(places.plist).read_text()
        plist.write_text(installed.replace(f"change {found.changes - 1}", value))
        assert plist.read_text() != installed
        hosts[name] = {
            "plist": str(plist),
            "target": places.plist,
            "domain": mac.domain(),
            "service": f"{mac.domain()}/{places.label}",
            "root": places.root,
            "current": str(Path(places.current).resolve()),
            "generation": f"bench{found.changes:07}",
            "health": f"http://127.0.0.1:{found.fleet.ports[name]}/healthz",
            "ansible_python_interpreter": sys.executable,
        }
    inventory, playbook = found.folder / "ansible.yaml", found.folder / "playbook.yaml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    playbook.write_text(tasks)
    return str(inventory), str(playbook)


def install_ansible(folder: Path, version: str) -> Path:
    """A venv with ansible-core."""
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", *quiet, f"ansible-core=={version}"], check=True)
    return folder


def main() -> int:
    """Run the rounds; 0 whatever came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["nothing", "plist"], help="one of the two measurements")
    parser.add_argument("--ansible", default="2.19.14", help="the version of ansible-core")
    parser.add_argument("--ansible-venv", type=Path, help="a venv that has ansible-core already")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kakeya-bench-") as name:
        folder = Path(name)
        os.environ["HOME"] = str(folder / "operator")
        ansible = options.ansible_venv or folder / "ansible"
        if options.only != "nothing" and not options.ansible_venv:
            install_ansible(ansible, options.ansible)
        with field(folder, options.hosts) as found:
            near = found.write_config("first", found.ports)
            found.want_another()
            found.kakeya(near, "deploy", "nodes", "--yes", "--parallel", str(options.hosts))
            measures = []
            if options.only != "nothing":
                measures += measure_new_plist(found, ansible, options.rounds)
                found.kakeya(near, "deploy", "nodes", "--yes", "--parallel", str(options.hosts))
            if options.only != "plist":
                measures.append(measure_nothing_to_do(found, options.rounds))
    print(render_table(measures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
