"""Commands are read from a page as a person would paste them."""

from __future__ import annotations

from kakeya_ops.runbook.blocks import Command, Edit, read_commands, read_steps

PAGE = """# Title

```console
$ kakeya deploy 'a b' --check
a b (worker): … differs
…
$ kakeya status
```

*Exits with 0, or with 5 when something would be done.*

`kakeya not-a-command`

```yaml
cache:
  window: 64
```

```console
$ kakeya doctor \\
    vault
all … well
```
"""


def test_commands_come_in_order_with_what_is_stated_of_them() -> None:
    assert read_commands(PAGE) == (
        Command(("kakeya", "deploy", "a b", "--check"), ("a b (worker): … differs",), (0,)),
        Command(("kakeya", "status"), (), (0, 5)),
        Command(("kakeya", "doctor", "vault"), ("all … well",), (0,)),
    )


def test_a_change_of_the_inventory_stands_between_them() -> None:
    assert [type(step) for step in read_steps(PAGE)] == [Command, Command, Edit, Command]
    assert read_steps(PAGE)[2] == Edit("cache:\n  window: 64\n")


def test_stated_output_is_looked_for_in_order_and_width_does_not_matter() -> None:
    command = Command((), ("vault … done", "next:"))
    assert command.is_shown_in("host\nvault   a  ->  b   done\nand\nnext:\n")
    assert not command.is_shown_in("next:\nvault -> done\n")
    assert not command.is_shown_in("vault\ndone\nnext:")
    assert Command((), ()).is_shown_in("anything")
