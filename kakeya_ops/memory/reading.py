"""The probes that read a host's memory, over ssh or here, on macOS or Linux, in one round trip.

They change nothing, need nothing installed and bound what they print and how long they take. Metal is asked through
``osascript``, which every Mac has; if it does not answer, the Python of an installed program asks MLX there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kakeya_ops.memory.facts import parse_host
from kakeya_ops.memory.host import HostMemory
from kakeya_ops.probes import make_nonce, parse_findings, script_of

_SECONDS = 60.0

MEMORY_PROBES = r"""
within() { perl -e 'alarm shift; exec @ARGV or exit 127' "$@"; }
ask_metal() {
  within 5 osascript -l JavaScript -e '
    ObjC.import("CoreGraphics");
    ObjC.import("Metal");
    ObjC.bindFunction("MTLCreateSystemDefaultDevice", ["id", []]);
    const gpu = $.MTLCreateSystemDefaultDevice();
    JSON.stringify({
      asked: "Metal",
      max_recommended_working_set_size: Number(gpu.recommendedMaxWorkingSetSize),
      max_buffer_length: Number(gpu.maxBufferLength),
    })' | grep 'size":[1-9]'
}
ask_mlx() {
  for python in "$1"/programs/*/venv/bin/python; do
    [ -x "$python" ] && break
  done
  within 15 "$python" -c '
import json
import mlx.core as mx
said = (mx.device_info if hasattr(mx, "device_info") else mx.metal.device_info)()
names = "max_recommended_working_set_size", "max_buffer_length"
print(json.dumps({"asked": "mx.device_info", **{name: said[name] for name in names}}))'
}
ask_gpu() { ask_metal || ask_mlx "$1"; }
read_sysctl() {
  LC_ALL=C sysctl hw.memsize vm.swapusage kern.memorystatus_vm_pressure_level
  # Not every Mac has these, and a name that is unknown may end the call.
  sysctl hw.optional.arm64
  sysctl iogpu.wired_limit_mb
  true
}
list_processes() (
  LC_ALL=C
  export LC_ALL
  ps -A -ww -o pid= -o rss= -o args= | sort -k 2,2nr | head -n 60 | cut -b 1-400
)
list_footprints() { LC_ALL=C within 10 top -l 1 -o mem -n 60 -stats pid,mem; }
probe_memory() {
  system=$(uname -s)
  probe system echo "$system"
  probe processes list_processes
  if [ "$system" = Darwin ]; then
    probe macos sw_vers -productVersion
    probe build sw_vers -buildVersion
    probe sysctl read_sysctl
    probe vm_stat vm_stat
    probe footprints list_footprints
    probe gpu ask_gpu "$1"
  else
    probe build uname -r
    probe meminfo cat /proc/meminfo
    probe page getconf PAGESIZE
  fi
}
"""
"""Defines ``probe_memory ROOT`` for a script of `kakeya_ops.probes`; ROOT is where programs are installed, or empty."""

_CALL = """
root=$1
case $root in "~"/*) root=$HOME/${root#??} ;; esac
probe_memory "$root"
"""


class Answer(Protocol):
    """What a command wrote."""

    @property
    def stdout(self) -> bytes:
        """All of its standard output."""


class Shell(Protocol):
    """Whatever can run a command on a host: a `kakeya_ops.remote.runner.Runner`, for example."""

    def run(self, argv: Sequence[str], *, input: bytes = b"", timeout_seconds: float = _SECONDS) -> Answer:
        """Run `argv` with `input`; raises an error of its own where that is impossible."""


def read_host_memory(shell: Shell, install_root: str = "") -> HostMemory:
    """The memory of the host that `shell` reaches, in one call, whose errors it passes on.

    `install_root` is a folder on that host, ``~`` meaning its user's home, whose programs may be asked about the GPU.
    """
    script = script_of((MEMORY_PROBES + _CALL).encode(), make_nonce())
    answer = shell.run(script.argv((install_root,)), input=script.text, timeout_seconds=_SECONDS)
    return parse_host(parse_findings(answer.stdout, script.nonce))


__all__ = ["MEMORY_PROBES", "Answer", "Shell", "read_host_memory"]
