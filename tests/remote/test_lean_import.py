"""What paramiko does not need for us is left out, and only there."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_other_package_is_not_imported_and_can_be_afterwards() -> None:
    code = (
        "import sys; from kakeya_ops.remote.lean_import import import_paramiko; import_paramiko()\n"
        "import kakeya_ops.remote.connect; print('paramiko' in sys.modules, 'invoke' in sys.modules)\n"
        "import invoke; print(invoke.__name__); import_paramiko()"
    )
    assert run(code).split() == ["True", "False", "invoke"]
