from __future__ import annotations

from typing import Annotated

import typer

from kakeya_ops.cli.reference import render_reference

PAGE = """\
# Commands

Made by `make docs` from the commands themselves; a change is made there.

## `kakeya`

Owns a zoo.

```console
$ kakeya [OPTIONS] COMMAND [ARGS]...
```

Open all day.

## `kakeya feed`

Feed one animal.

It will be grateful.

```console
$ kakeya feed [OPTIONS]
```

| argument or option | meaning |
|---|---|
| `--food hay\\|fish` | What there is.  [default: hay] |

## `kakeya rest`

Close the gates.

```console
$ kakeya rest [OPTIONS]
```
"""


def make_zoo() -> typer.Typer:
    zoo = typer.Typer(epilog="Open all day.")

    @zoo.callback()
    def root() -> None:
        """Owns a zoo."""

    @zoo.command()
    def feed(
        food: Annotated[str, typer.Option(help="What there is.", metavar="hay|fish")] = "hay",
    ) -> None:
        """
        Feed one animal.

        It will be grateful.
        """

    @zoo.command()
    def rest() -> None:
        """Close the gates."""

    return zoo


def test_the_page_has_every_command_with_what_it_takes() -> None:
    assert render_reference(make_zoo()) == PAGE
