"""The script is a constant: what it is about comes as arguments, and means nothing to the shell."""

from __future__ import annotations

import subprocess

from kakeya_ops.doctor.script import arguments, make_script
from kakeya_ops.probes import parse_findings


def test_each_target_is_an_address_and_a_url_whatever_is_in_them() -> None:
    script = make_script()
    targets = [("$(touch /tmp/x)", "http://127.0.0.1:9/`id`"), ("a b", "file:///etc/passwd")]
    words = arguments(targets)
    assert words == ("$(touch /tmp/x)", "http://127.0.0.1:9/`id`", "a b", "file:///etc/passwd")
    environment = {"PATH": "/nowhere:/usr/bin:/bin"}
    done = subprocess.run(script.argv(words), input=script.text, capture_output=True, env=environment, check=True)
    found = parse_findings(done.stdout, script.nonce)
    assert {"clock", "route_0", "port_0", "route_1", "port_1"} <= set(found)
    assert found["clock"].text.isdecimal()
