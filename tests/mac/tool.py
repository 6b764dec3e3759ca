"""Where every program of the simulated Mac begins: ``tool.py FOLDER NAME ARGUMENT...``."""

from __future__ import annotations

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from mac.codes import Failure
from mac.state import Store


def main(folder: str, name: str, *arguments: str) -> int:
    store = Store(folder)
    store.note_call([name, *arguments])
    try:
        if name == "launchctl":
            from mac import launchctl

            output = launchctl.run(store, list(arguments))
        else:
            from mac import tools

            output = tools.run(store, name, list(arguments))
    except Failure as failure:
        sys.stderr.write("".join(f"{line}\n" for line in failure.lines))
        return failure.status
    sys.stdout.write(output)
    return 0


if __name__ == "__main__":
    try:
        status = main(*map(os.fsdecode, sys.argv[1:]))
        sys.stdout.flush()
    except BrokenPipeError:
        status = 141
    # Nothing is left to tidy up, and the interpreter takes its time for it.
    os._exit(status)
