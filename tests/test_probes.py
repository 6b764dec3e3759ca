"""What probes print comes back as it was, whatever it looks like."""

from __future__ import annotations

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.probes import Finding, make_nonce, parse_findings, script_of

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


def test_a_script_runs_its_probes_with_its_arguments() -> None:
    body = b'probe said echo "$1"\nprobe failed false\nshow file "$2"\nshow nothing /nowhere\n'
    script = script_of(body, make_nonce())
    argv = script.argv(("a b'$(id)", "/dev/null"))
    done = subprocess.run(argv, input=script.text, capture_output=True, timeout=60)
    assert parse_findings(done.stdout, script.nonce) == {
        "said": Finding(0, b"a b'$(id)\n"),
        "failed": Finding(1, b""),
        "file": Finding(0, b""),
    }


def test_a_nonce_is_not_used_twice() -> None:
    assert make_nonce() != make_nonce()
