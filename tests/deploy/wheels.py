"""Small wheels that install in no time and need nothing."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.deploy.wheel import Wheel, pack

SCRIPT = """
def run():
    import sys
    print("kakeya 9.9", *sys.argv[1:])
"""


def make_wheel(name: str = "kakeya", version: str = "9.9", requires: tuple[str, ...] = (), code: str = SCRIPT) -> Wheel:
    """A wheel with one module, ``<name>_module``, whose `run` is the script called `name`."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    files = {
        f"{stem}_module.py": code,
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {stem}_module:run\n",
    }
    data = pack({path: text.encode() for path, text in files.items()}, info)
    return Wheel(f"{stem}-{version}-py3-none-any.whl", data)


@dataclass(frozen=True)
class ReadyWheel:
    """A `WheelSource` whose wheel is there already."""

    requirements: tuple[str, ...] = ()
    digest: str = "0" * 64
    code: str = SCRIPT

    def wheel(self) -> Wheel:
        return make_wheel(requires=self.requirements, code=self.code)


__all__ = ["SCRIPT", "ReadyWheel", "make_wheel"]
