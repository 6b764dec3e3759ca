"""What probes print comes back as it was, whatever it looks like."""

from __future__ import annotations

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.observe.script import Finding, make_script, parse_findings
from mac.host import MacHost

NONCE = "0" * 32
NAMES = st.sampled_from(["user", "uid", "plist", "job_gui"])
LINES = st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([b"begin user", b"end user 0", b"}"])), max_size=5)


@given(st.dictionaries(NAMES, st.tuples(st.integers(0, 255), LINES.map(b"\n".join))))
def test_outputs_are_told_apart_whatever_they_are(probes: dict[str, tuple[int, bytes]]) -> None:
    stream = b"".join(
        f"\n{NONCE} begin {name}\n".encode() + output + f"\n{NONCE} end {name} {status}\n".encode()
        for name, (status, output) in probes.items()
    )
    assert parse_findings(stream, NONCE) == {name: Finding(*probe) for name, probe in probes.items()}


@given(st.integers(0, 200))
def test_a_report_that_was_cut_off_has_only_whole_findings(length: int) -> None:
    stream = b"".join(f"\n{NONCE} begin p{n}\nout\n{NONCE} end p{n} 0\n".encode() for n in range(3))
    for finding in parse_findings(stream[:length], NONCE).values():
        assert finding == Finding(0, b"out")


def test_the_script_runs_in_a_plain_shell_and_takes_hostile_arguments_for_what_they_are(mac: MacHost) -> None:
    evil = f"{mac.home}/$(touch {mac.home}/evil)'\";`touch {mac.home}/evil`"
    script = make_script({})
    arguments = ("label", evil, evil, evil, evil, evil, evil)
    argv = script.argv(arguments)
    done = subprocess.run(argv, input=script.text, env=mac.environment, cwd=mac.home, capture_output=True, timeout=60)
    findings = parse_findings(done.stdout, script.nonce)
    assert findings["user"].text
    assert {"macos", "chip", "memory", "disk", "console", "job_gui", "domain_user"} <= set(findings)
    assert "key_absent" in findings
    assert done.stderr == b""
    assert not (mac.home / "evil").exists()


def test_requests_are_in_the_text_and_never_in_the_arguments() -> None:
    script = make_script({"card_0": b'header = "Authorization: x"'})
    assert b"Authorization" in script.text
    assert not any("Authorization" in word for word in script.argv(("label",)))
