from __future__ import annotations

import getpass
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from faults.proxy import FaultProxy
from kakeya_ops.errors import AuthenticationFailed, ConnectFailed, HostKeyRejected, InputError
from kakeya_ops.inventory.models import ResolvedHost
from kakeya_ops.remote import connect as connect_module
from kakeya_ops.remote.connect import connect
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.openssh_runner import OpenSshRunner
from kakeya_ops.remote.paramiko_runner import ParamikoRunner
from kakeya_ops.remote.runner import Runner
from sshd import HOST, SshServer, make_key, quoted, write_ssh_program

MakeServer = Callable[..., SshServer]
WAYS: dict[str, dict[str, Any]] = {"paramiko": {}, "openssh": {"BindAddress": "127.0.0.1"}}
"""What a configuration says for a host to be reached in one way or the other."""

each_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def reach(host: ResolvedHost) -> Iterator[Callable[[Path], Runner]]:
    """Connect by a configuration file."""
    opened: list[Runner] = []

    def connect_by(config: Path, **changes: Any) -> Runner:
        opened.append(connect(host.model_copy(update=changes), config_file=config))
        return opened[-1]

    yield connect_by
    for runner in opened:
        runner.close()


Reach = Callable[..., Runner]


def fingerprint_of(key: Path) -> str:
    shown = subprocess.run(["ssh-keygen", "-l", "-f", key], check=True, capture_output=True, text=True)
    return shown.stdout.split()[1]


def type_in(command: str) -> None:
    """What a person does who accepts a host key."""
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)


class TestChoice:
    def test_paramiko_where_it_can_do_all(self, server: SshServer, reach: Reach) -> None:
        runner = reach(server.write_config())
        assert isinstance(runner, ParamikoRunner)
        assert runner.notes == ()
        assert runner.name == "allens"
        assert runner.run(["echo", "there"], check=True).text == "there\n"

    def test_the_inventory_wins_over_the_configuration(
        self, server: SshServer, host: ResolvedHost, reach: Reach
    ) -> None:
        config = server.write_config(User="nobody-knows", Port=1)
        ssh = host.ssh.model_copy(update={"user": server.user, "port": server.port})
        assert reach(config, ssh=ssh).run(["true"]).status == 0

    def test_through_a_jump_host_by_the_systems_ssh(
        self, server: SshServer, make_server: MakeServer, reach: Reach
    ) -> None:
        jump = make_server("jump")
        config = server.write_config("mac", "jumping", ProxyJump="jump", UserKnownHostsFile=quoted(jump.known_hosts))
        with jump.known_hosts.open("a") as known:
            known.write(server.known_line())
        with config.open("a") as file:
            file.write(jump.write_config("jump").read_text())
        runner = reach(config)
        assert isinstance(runner, OpenSshRunner)
        assert runner.notes == ("by the system's ssh, which can do: ProxyJump",)
        runner.write("~/jumped", b"far", 0o600)
        assert runner.run(["cat", "jumped"], check=True).text == "far"
        assert "Accepted publickey" in jump.log

    def test_include_match_and_alias(self, server: SshServer, tmp_path: Path, reach: Reach) -> None:
        included = server.write_config("real-name", "included")
        text = included.read_text().replace("Host real-name", "Match originalhost mac exec true")
        included.write_text(text + "Host mac\n    Port 1\n")
        config = tmp_path / "config with space"
        config.write_text(f"Include {quoted(included)}\n")
        assert isinstance(reach(config), ParamikoRunner)

    def test_this_machine_needs_no_ssh(self, tmp_path: Path, reach: Reach) -> None:
        config = tmp_path / "config"
        config.write_text(f"Host mac\n    HostName {socket.gethostname()}.local\n    User {getpass.getuser()}\n")
        runner = reach(config)
        assert isinstance(runner, LocalRunner)
        assert runner.notes == ("this machine itself: no ssh",)

    @pytest.mark.parametrize("line", ["User somebody-else", "Port 2222", "HostName localhost", "ProxyJump other"])
    def test_what_only_looks_like_this_machine(self, tmp_path: Path, line: str) -> None:
        from kakeya_ops.remote.ssh_config import SshTarget, resolve

        config = tmp_path / "config"
        config.write_text(f"Host mac\n    {line}\n    HostName {socket.gethostname()}\n    User {getpass.getuser()}\n")
        assert not connect_module.is_this_machine(resolve(SshTarget("mac", config_file=config)))

    @pytest.mark.parametrize(
        "name", ["-oProxyCommand=touch pwned", "a b", "$(touch pwned)", "user@mac", "ssh://mac", "a;b", "a\nb", "`a`"]
    )
    def test_a_name_that_is_no_name(
        self, host: ResolvedHost, server: SshServer, reach: Reach, name: str, tmp_path: Path, monkeypatch: Any
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for update in ({"host": name}, {"host": "mac", "user": name}):
            if update.get("user") == "user@mac":
                continue
            with pytest.raises(InputError, match="characters that no"):
                reach(server.write_config(), ssh=host.ssh.model_copy(update=update))
        assert list(tmp_path.iterdir()) == []

    def test_a_configuration_that_ssh_refuses(self, tmp_path: Path, reach: Reach) -> None:
        config = tmp_path / "config"
        config.write_text("Nonsense yes\n")
        with pytest.raises(InputError, match=r"(?i)bad configuration option: nonsense"):
            reach(config)


class TestWithoutSsh:
    @pytest.fixture(autouse=True)
    def _no_programs(self, server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "bin").mkdir()
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def test_paramiko_with_a_note(self, server: SshServer, reach: Reach, tmp_path: Path) -> None:
        runner = reach(server.write_config())
        assert runner.notes == ("no ssh program here: connecting with paramiko alone",)
        assert runner.run(["/bin/echo", "there"], check=True).text == "there\n"
        (tmp_path / "source").write_bytes(b"x" * 100_000)
        runner.upload(tmp_path / "source", "~/sent", progress=lambda _: None)
        assert (server.home / "sent").stat().st_size == 100_000

    def test_what_paramikos_parser_would_misread_is_said(self, server: SshServer, reach: Reach) -> None:
        config = server.write_config("mac", "with_include")
        config.write_text("Include other\n" + config.read_text())
        assert "may be misread without the ssh program: Include" in reach(config).notes[1]

    def test_what_paramiko_cannot_do_is_refused(self, server: SshServer, reach: Reach) -> None:
        with pytest.raises(ConnectFailed, match="needs the ssh program, which is not here: ProxyJump"):
            reach(server.write_config("mac", "jump_without_ssh", ProxyJump="other"))


@each_way
class TestHostKeys:
    def test_unknown(self, server: SshServer, tmp_path: Path, reach: Reach, way: str) -> None:
        known = tmp_path / "known hosts"
        config = server.write_config("mac", f"unknown_{way}", UserKnownHostsFile=quoted(known), **WAYS[way])
        with pytest.raises(HostKeyRejected) as caught:
            reach(config)
        error = caught.value
        assert (error.reason, error.host) == ("unknown", "allens")
        assert fingerprint_of(server.host_key) in error.fingerprint
        assert not known.exists()
        assert error.hint is not None
        assert "ssh-keyscan" in error.hint

    def test_the_command_in_the_hint_accepts_it(
        self, server: SshServer, tmp_path: Path, reach: Reach, way: str
    ) -> None:
        known = tmp_path / "known"
        config = server.write_config("mac", f"accept_{way}", UserKnownHostsFile=known, **WAYS[way])
        with pytest.raises(HostKeyRejected) as caught:
            reach(config)
        assert caught.value.hint is not None
        type_in(caught.value.hint.partition("accept it: ")[2])
        assert reach(config).run(["true"]).status == 0

    def test_changed(self, server: SshServer, tmp_path: Path, reach: Reach, way: str) -> None:
        known = tmp_path / "known"
        old = server.known_line(make_key(tmp_path / "old_key"))
        known.write_text(old)
        config = server.write_config("mac", f"changed_{way}", UserKnownHostsFile=known, **WAYS[way])
        with pytest.raises(HostKeyRejected) as caught:
            reach(config)
        assert caught.value.reason == "changed"
        assert fingerprint_of(server.host_key) in caught.value.fingerprint
        assert known.read_text() == old
        assert caught.value.hint is not None
        assert "ssh-keygen -R" in caught.value.hint
        type_in(caught.value.hint.partition("accept it: ")[2])
        assert reach(config).run(["true"]).status == 0

    def test_revoked(self, server: SshServer, tmp_path: Path, reach: Reach, way: str) -> None:
        known = tmp_path / "known"
        known.write_text(server.known_line() + f"@revoked * {server.known_line().partition(' ')[2]}")
        with pytest.raises(HostKeyRejected) as caught:
            reach(server.write_config("mac", f"revoked_{way}", UserKnownHostsFile=known, **WAYS[way]))
        assert caught.value.reason == "revoked"
        assert fingerprint_of(server.host_key) in caught.value.fingerprint

    def test_odd_lines_do_not_hide_the_right_one(
        self, server: SshServer, tmp_path: Path, reach: Reach, way: str
    ) -> None:
        known = tmp_path / "known"
        authority = f"@cert-authority *.example {server.known_line().partition(' ')[2]}"
        known.write_text(f"nonsense\n{authority}@revoked other ssh-ed25519 AAAA\n# note\n\n{server.known_line()}")
        config = server.write_config("mac", f"odd_{way}", UserKnownHostsFile=known, **WAYS[way])
        assert reach(config).run(["true"]).status == 0

    def test_hashed_names(self, server: SshServer, tmp_path: Path, reach: Reach, way: str) -> None:
        known = tmp_path / "known"
        known.write_text(server.known_line())
        subprocess.run(["ssh-keygen", "-H", "-f", known], check=True, capture_output=True)
        assert HOST not in known.read_text()
        config = server.write_config("mac", f"hashed_{way}", UserKnownHostsFile=known, **WAYS[way])
        assert reach(config).run(["true"]).status == 0


def test_a_host_that_only_an_authority_vouches_for(server: SshServer, tmp_path: Path, reach: Reach) -> None:
    authority = make_key(tmp_path / "authority")
    known = tmp_path / "known"
    known.write_text(f"@cert-authority * {authority.with_suffix('.pub').read_text()}")
    with pytest.raises(HostKeyRejected):  # this server has no certificate
        reach(server.write_config("mac", "authority", UserKnownHostsFile=known))


@each_way
class TestKeys:
    def test_a_wrong_key(self, server: SshServer, other_keys: list[Path], reach: Reach, way: str) -> None:
        config = server.write_config("mac", f"wrong_{way}", IdentityFile=other_keys[0], **WAYS[way])
        with pytest.raises(AuthenticationFailed, match=f"did not let {server.user} in") as caught:
            reach(config)
        assert caught.value.tried == (str(other_keys[0]),)

    def test_no_key_at_all(self, server: SshServer, tmp_path: Path, reach: Reach, way: str) -> None:
        config = server.write_config("mac", f"none_{way}", IdentityFile=tmp_path / "none", **WAYS[way])
        with pytest.raises(AuthenticationFailed, match="was offered no key"):
            reach(config)

    def test_a_key_that_only_the_agent_has(
        self, server: SshServer, agent: Callable[[Path], None], tmp_path: Path, reach: Reach, way: str
    ) -> None:
        agent(server.client_key)
        public = tmp_path / "key.pub"
        public.write_bytes(server.client_key.with_suffix(".pub").read_bytes())
        config = server.write_config("mac", f"agent_{way}", IdentityFile=public, **WAYS[way])
        assert reach(config).run(["true"]).status == 0
        nobody = server.write_config("mac", f"no_agent_{way}", IdentityFile=public, IdentityAgent="none", **WAYS[way])
        with pytest.raises(AuthenticationFailed):
            reach(nobody)

    def test_only_the_named_keys_are_offered(
        self,
        make_server: MakeServer,
        agent: Callable[[Path], None],
        other_keys: list[Path],
        reach: Reach,
        way: str,
    ) -> None:
        own = make_server(settings={"MaxAuthTries": 3})
        for key in other_keys:
            agent(key)
        assert reach(own.write_config("mac", f"only_{way}", **WAYS[way])).run(["true"]).status == 0
        # Without the setting the agent's keys come first, and the server has had enough.
        with pytest.raises(AuthenticationFailed):
            reach(own.write_config("mac", f"all_{way}", IdentitiesOnly="no", **WAYS[way]))


def test_a_locked_key(server: SshServer, tmp_path: Path, reach: Reach) -> None:
    locked = make_key(tmp_path / "locked", passphrase="a passphrase")
    with pytest.raises(AuthenticationFailed) as caught:
        reach(server.write_config("mac", "locked", IdentityFile=locked))
    assert caught.value.hint == f"unlock the key first: ssh-add {locked}"


def test_ssh_may_try_what_paramiko_has_no_word_for(server: SshServer, other_keys: list[Path], reach: Reach) -> None:
    config = server.write_config("mac", "gssapi", IdentityFile=other_keys[0], GSSAPIAuthentication="yes")
    with pytest.raises(AuthenticationFailed) as caught:
        reach(config)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("try: ssh -F")


@each_way
class TestTrouble:
    @pytest.fixture(autouse=True)
    def _patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connect_module, "_RETRY_AFTER_SECONDS", (0.01, 0.01))

    @pytest.fixture
    def proxy(self, server: SshServer) -> Iterator[FaultProxy]:
        with FaultProxy((HOST, server.port)) as started:
            yield started

    def config(self, server: SshServer, proxy: FaultProxy, folder: Path, way: str) -> Path:
        known = folder / "known"
        known.write_text(server.known_line(port=proxy.port))
        settings = {"Port": proxy.port, "UserKnownHostsFile": known, "ConnectTimeout": 1, **WAYS[way]}
        return server.write_config("mac", f"trouble_{way}", **settings)

    def test_nobody_listens(self, server: SshServer, proxy: FaultProxy, tmp_path: Path, reach: Reach, way: str) -> None:
        config = self.config(server, proxy, tmp_path, way)
        proxy.close()
        with pytest.raises(ConnectFailed, match="refused") as caught:
            reach(config)
        assert not caught.value.transient

    def test_a_busy_server_is_asked_again(
        self, server: SshServer, proxy: FaultProxy, tmp_path: Path, reach: Reach, way: str
    ) -> None:
        proxy.set("refuse")
        with pytest.raises(ConnectFailed) as caught:
            reach(self.config(server, proxy, tmp_path, way))
        assert caught.value.transient
        assert proxy.wait_until(lambda proxy: proxy.accepted == 3)

    def test_it_gets_through_in_the_end(
        self, server: SshServer, proxy: FaultProxy, tmp_path: Path, reach: Reach, way: str, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(connect_module, "_RETRY_AFTER_SECONDS", (0.2,) * 20)
        proxy.set("refuse")
        config = self.config(server, proxy, tmp_path, way)
        with ThreadPoolExecutor(1) as pool:
            connecting = pool.submit(reach, config)
            assert proxy.wait_until(lambda proxy: proxy.accepted > 0)
            proxy.heal()
            assert connecting.result(20).run(["true"]).status == 0

    def test_a_server_that_says_nothing(
        self, server: SshServer, proxy: FaultProxy, tmp_path: Path, reach: Reach, way: str
    ) -> None:
        proxy.set("ignore")
        started = time.monotonic()
        with pytest.raises(ConnectFailed):
            reach(self.config(server, proxy, tmp_path, way))
        assert time.monotonic() - started < 15


def test_an_ssh_program_with_a_configuration_of_its_own(
    server: SshServer, host: ResolvedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_ssh_program(tmp_path / "bin", server.write_config())
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    runner = connect(host)
    assert runner.run(["pwd"], check=True).text.strip() == str(server.home)
    runner.close()
