"""The way back of a service; the whole of it is tried in the flows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.restoring import restore_service, write_plist


def test_the_old_property_list_comes_back_or_goes(context: HostContext) -> None:
    plist = Path(context.places.plist)
    write_plist(context, b"new")
    assert plist.stat().st_mode & 0o777 == 0o644
    restore_service(context)
    assert not plist.exists()
    write_plist(context, b"new")
    context.before = dataclasses.replace(context.before, plist=b"old")
    restore_service(context)
    assert plist.read_bytes() == b"old"
