from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from kakeya_ops.errors import InputError
from kakeya_ops.remote import ssh_config
from kakeya_ops.remote.ssh_config import SshTarget, parse_settings, resolve

CONFIG = """
Include {included}
Host mac
    HostName 10.0.0.2
    IdentityFile ~/.ssh/first
    IdentityFile "/keys/with space"
    IdentitiesOnly yes
    UserKnownHostsFile /known/one /known/two
    GlobalKnownHostsFile none
    HostKeyAlias the-mac
    ConnectTimeout 7
Match originalhost mac exec "test -f {flag}"
    Port 2200
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "included").write_text("Host mac\n    User fluffy\n")
    path = tmp_path / "config"
    path.write_text(CONFIG.format(included=tmp_path / "included", flag=tmp_path / "flag"))
    return path


def test_ssh_is_asked(config: Path, tmp_path: Path) -> None:
    ssh = resolve(SshTarget("mac", config_file=config))
    assert (ssh.hostname, ssh.port, ssh.user) == ("10.0.0.2", 22, "fluffy")
    (tmp_path / "flag").touch()
    ssh = resolve(SshTarget("mac", config_file=config))
    assert ssh.port == 2200
    assert ssh.known_names == ("the-mac",)
    assert ssh.known_hosts_files == (Path("/known/one"), Path("/known/two"))
    assert ssh.identity_files[1] == Path("/keys/with space")
    assert ssh.identity_files[0].parts[-2:] == (".ssh", "first")
    assert "~" not in str(ssh.identity_files[0])
    assert ssh.identities_only
    assert ssh.connect_timeout_seconds == 7
    assert ssh.notes == ()


def test_what_the_target_says_wins(config: Path) -> None:
    target = SshTarget("mac", "someone", 99, config)
    assert target.options() == ("-F", str(config), "-l", "someone", "-p", "99")
    ssh = resolve(target)
    assert (ssh.user, ssh.port) == ("someone", 99)


def test_a_host_that_no_file_knows(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    ssh = resolve(SshTarget("fe80::1%en5", config_file=tmp_path / "empty"))
    assert (ssh.hostname, ssh.port, ssh.user) == ("fe80::1%en5", 22, getpass.getuser())
    assert not ssh.identities_only
    assert ssh.connect_timeout_seconds == 10


@pytest.mark.parametrize("host", ["-v", "", "a b", "a\tb", "a'b", "a@b", "a/b", "a,b", "$HOME", "a\x00", "a(b)", "é b"])
def test_hosts_that_could_mean_more(host: str) -> None:
    with pytest.raises(InputError, match="ssh host"):
        SshTarget(host)


@pytest.mark.parametrize("user", ["-l", "", "a b", "a;b", "`x`", "a:b", "a|b"])
def test_users_that_could_mean_more(user: str) -> None:
    with pytest.raises(InputError, match="ssh user"):
        SshTarget("mac", user)


@pytest.mark.parametrize("host", ["mac", "mac.local", "10.0.0.1", "fe80::1%en0", "my_mac", "MAC-2", "日本"])
def test_hosts_that_are_fine(host: str) -> None:
    assert SshTarget(host, "first.last@corp").host == host


def test_repeated_settings_are_kept_in_order() -> None:
    settings = parse_settings("identityfile a\nPort 22\nidentityfile b c\n\nempty\n")
    assert settings == {"identityfile": ("a", "b c"), "port": ("22",), "empty": ("",)}


class TestWithoutSsh:
    @pytest.fixture(autouse=True)
    def _no_program(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ssh_config.shutil, "which", lambda name: None)

    def test_paramiko_reads_it_as_well_as_it_can(self, config: Path) -> None:
        config.write_text(config.read_text().partition("Match")[0])
        ssh = resolve(SshTarget("mac", config_file=config))
        assert (ssh.hostname, ssh.program) == ("10.0.0.2", None)
        assert ssh.user == getpass.getuser()  # the included file is not read, and that is said:
        assert ssh.notes[1].endswith("may be misread without the ssh program: Include")
        assert ssh.known_hosts_files == (Path("/known/one"), Path("/known/two"))
        assert ssh.identities_only

    def test_the_target_still_wins(self, config: Path) -> None:
        config.write_text("Host *\n    User a\n    Port 1\n")
        ssh = resolve(SshTarget("mac", "b", 2, config))
        assert (ssh.user, ssh.port) == ("b", 2)
        assert [path.name for path in ssh.identity_files] == ["id_ed25519", "id_ecdsa", "id_rsa"]

    def test_no_file(self, tmp_path: Path) -> None:
        ssh = resolve(SshTarget("mac", config_file=tmp_path / "none"))
        assert (ssh.hostname, ssh.port) == ("mac", 22)

    def test_nonsense(self, config: Path) -> None:
        config.write_text("Match host=x\n    User y\n")
        with pytest.raises(InputError, match="cannot be read"):
            resolve(SshTarget("mac", config_file=config))


def test_a_match_that_never_ends(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_config, "_TIMEOUT_SECONDS", 0.3)
    config.write_text('Match exec "sleep 30"\n    User y\n')
    with pytest.raises(InputError, match="took too long"):
        resolve(SshTarget("mac", config_file=config))
