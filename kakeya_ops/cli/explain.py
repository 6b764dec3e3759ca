"""``kakeya explain``: how one request's prefix came to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kakeya_ops.cli.asking_the_head import ApiKeyFileOption, UrlOption, fleet_keys, head_url, read_api_key
from kakeya_ops.cli.context import app_context
from kakeya_ops.errors import ExitCode, InputError
from kakeya_ops.secret import Secret

if TYPE_CHECKING:
    from kakeya_ops.inventory import Inventory


def explain(
    ctx: typer.Context,
    request_id: Annotated[
        str, typer.Argument(help="The id of the answer, or of the request (X-Request-Id).", metavar="REQUEST_ID")
    ],
    url: UrlOption = None,
    api_key_file: ApiKeyFileOption = None,
) -> None:
    """Explain one request: its receipt as a timeline, whether the fleet signed it, and which gain applied.

    Exits with 0 when it was found, 1 when the head keeps no such receipt or a signature is wrong, 3 when the head
    cannot be reached.

    Examples:
        kakeya explain 4f1c0a9be2d7
        kakeya --json explain chatcmpl-4f1c0a9be2d7
    """
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.verify.explain import explain as explain_request
    from kakeya_ops.verify.head_client import HeadClient
    from kakeya_ops.views.explain import explanation

    context = app_context(ctx)
    inventory = load_inventory(find_inventory(context.inventory_path))
    keys, without_keys = _keys(inventory)
    address = head_url(inventory, url)
    with context.printer.progress(f"asking {address}"), HeadClient(address, read_api_key(api_key_file)) as client:
        found = explain_request(client, request_id.rpartition("-")[2], keys, without_keys)
    context.printer.show(found.to_json(), *explanation(found))
    raise typer.Exit(ExitCode.OK if found.trustworthy else ExitCode.NO)


def _keys(inventory: Inventory) -> tuple[Sequence[Secret], str]:
    """The fleet's keys, or none and why: a receipt is of use also where its signature cannot be checked."""
    try:
        return fleet_keys(inventory), ""
    except InputError as error:
        return (), error.message


__all__ = ["explain"]
