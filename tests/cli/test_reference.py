from __future__ import annotations

from typing import Annotated

import typer

from kakeya_ops.cli.help import Command, Group
from kakeya_ops.cli.reference import render_reference

PAGE = """\
# Commands

Made by `make docs` from the commands themselves; a change is made there.

## `kakeya`

Owns a zoo.

```text
kakeya [OPTIONS] COMMAND [ARGS]...
```

```console
$ kakeya feed
```

Open all day.

## `kakeya feed`

Feed one animal.

It will be grateful.

```text
kakeya feed [OPTIONS]
```

| argument or option | meaning |
|---|---|
| `--food hay\\|fish` | What there is.  [default: hay] |

```console
$ kakeya feed --food hay
$ kakeya feed --food fish
```

## `kakeya rest`

Close the gates.

```text
kakeya rest [OPTIONS]
```

```console
$ kakeya rest
```
"""


def make_zoo() -> typer.Typer:
    zoo = typer.Typer(cls=Group, epilog="Open all day.")

    @zoo.callback()
    def root() -> None:
        """Owns a zoo.

        Examples:
            kakeya feed
        """

    @zoo.command(cls=Command)
    def feed(
        food: Annotated[str, typer.Option(help="What there is.", metavar="hay|fish")] = "hay",
    ) -> None:
        """
        Feed one animal.

        It will be grateful.

        Examples:
            kakeya feed --food hay
            kakeya feed --food fish
        """

    @zoo.command(cls=Command)
    def rest() -> None:
        """Close the gates.

        Examples:
            kakeya rest
        """

    return zoo


def test_the_page_has_every_command_with_what_it_takes() -> None:
    assert render_reference(make_zoo()) == PAGE
