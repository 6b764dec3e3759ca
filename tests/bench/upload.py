"""Measures uploads to a real OpenSSH server on loopback against the system's ``sftp put``, and prints the ratios.

    python tests/bench/upload.py [--rounds N] [--megabytes N]

Both sides of a ratio send the same file to the same server, one right after the other; each connects anew. An upload of
ours ends when the host has the file on its disk, which ``put -f`` waits for too, and ``put`` does not.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from results import Measure, render_table

from kakeya_ops.remote.openssh_runner import OpenSshRunner
from kakeya_ops.remote.paramiko_runner import ParamikoRunner
from kakeya_ops.remote.ssh_config import SshTarget, resolve
from sshd import SshServer

_TARGET = 0.8


def measure_uploads(folder: Path, rounds: int, megabytes: int) -> list[Measure]:
    """One line for each way to send, in MB/s."""
    source = folder / "source"
    source.write_bytes(os.urandom(megabytes * 10**6))
    with SshServer(folder / "server") as server:
        config = server.write_config()
        target = server.home / "target"
        pairs = [
            (Measure("upload by the system's ssh, to sftp put -f", "MB/s", "at least", _TARGET), False, "put -f"),
            (Measure("upload by the system's ssh, to sftp put", "MB/s", "at least", _TARGET), False, "put"),
            (Measure("upload by paramiko alone, to sftp put -f", "MB/s"), True, "put -f"),
        ]
        for _ in range(rounds):
            for measure, alone, put in pairs:
                theirs = megabytes / _seconds(partial(_sftp_put, config, source, target, put))
                measure.add(megabytes / _seconds(partial(_send, config, source, target, alone=alone)), theirs)
                assert target.stat().st_size == source.stat().st_size
    return [measure for measure, _, _ in pairs]


def _send(config: Path, source: Path, target: Path, *, alone: bool) -> None:
    ssh = resolve(SshTarget("mac", config_file=config))
    runner = ParamikoRunner("mac", ssh) if alone else OpenSshRunner("mac", ssh)
    try:
        runner.upload(source, str(target), progress=lambda _: None)
    finally:
        runner.close()


def _sftp_put(config: Path, source: Path, target: Path, put: str) -> None:
    argv = ["sftp", "-q", "-b", "-", "-F", config, "mac"]
    command = f"{put} {source} {target}\n".encode()
    subprocess.run(argv, input=command, check=True, stdout=subprocess.DEVNULL)


def _seconds(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def main() -> int:
    """Run the rounds; 0 whatever came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kakeya-bench-") as folder:
        print(render_table(measure_uploads(Path(folder), options.rounds, options.megabytes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
