"""The one script of a host."""

from __future__ import annotations

import subprocess

from kakeya_ops.observe.script import make_script
from kakeya_ops.probes import parse_findings
from mac.host import MacHost


def test_the_script_runs_in_a_plain_shell_and_takes_hostile_arguments_for_what_they_are(mac: MacHost) -> None:
    evil = f"{mac.home}/$(touch {mac.home}/evil)'\";`touch {mac.home}/evil`"
    script = make_script({})
    arguments = ("label", evil, evil, evil, evil, evil, evil)
    argv = script.argv(arguments)
    done = subprocess.run(argv, input=script.text, env=mac.environment, cwd=mac.home, capture_output=True, timeout=60)
    findings = parse_findings(done.stdout, script.nonce)
    assert findings["user"].text
    assert {"chip", "disk", "console", "job_gui", "domain_user"} <= set(findings)
    assert {"macos", "sysctl", "vm_stat", "gpu", "processes"} <= set(findings)
    assert "key_absent" in findings
    assert done.stderr == b""
    assert not (mac.home / "evil").exists()


def test_requests_are_in_the_text_and_never_in_the_arguments() -> None:
    script = make_script({"card_0": b'header = "Authorization: x"'})
    assert b"Authorization" in script.text
    assert not any("Authorization" in word for word in script.argv(("label",)))
