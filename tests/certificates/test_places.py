from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kakeya_ops.certificates.places import authorities_path, authority_path, certificate_path


def test_all_files_lie_beside_the_key_and_none_is_another() -> None:
    key = Path("/k/fleet.key")
    files = {authority_path(key), authorities_path(key), certificate_path(key)}
    assert {path.name for path in files} == {
        "fleet.key.authority.pem",
        "fleet.key.ca.pem",
        "fleet.key.cert.pem",
    }
    assert {path.parent for path in files} == {key.parent}
    assert authorities_path("~/fleet.key") == Path("~/fleet.key.ca.pem")  # as it is written on a host


@pytest.mark.parametrize(
    "modules",
    [
        "kakeya_ops.cli.status, kakeya_ops.status.collector, kakeya_ops.remote.connect",
        "kakeya_ops.cli.deploying, kakeya_ops.deploy.plan, kakeya_ops.deploy.sources, kakeya_ops.deploy.apply",
        "kakeya_ops.cli.rotating, kakeya_ops.cli.reading, kakeya_ops.doctor",
        "kakeya_ops.serving.startup, kakeya_ops.drill.nodes",
    ],
)
def test_who_may_do_without_tls_does_not_import_what_reads_certificates(modules: str) -> None:
    code = f"import sys, {modules}; print('cryptography.x509' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
