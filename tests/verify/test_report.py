from __future__ import annotations

import json

from kakeya_ops.verify.report import Check, VerifyReport

OK = Check("a", "ok", "1 of 1")


def report(*checks: Check) -> VerifyReport:
    return VerifyReport("http://head", "head", "worker", checks, {"cold": {"mac": "0"}})


def test_only_all_ok_is_a_yes() -> None:
    assert report(OK, OK).passed
    assert not report(OK, Check("b", "unknown", "no card")).passed
    assert not report(Check("b", "failed", "0 of 1"), OK).passed


def test_no_checks_are_not_a_yes() -> None:
    assert not report().passed


def test_it_is_plain_json() -> None:
    value = json.loads(json.dumps(report(OK).to_json()))
    assert value["passed"] is True
    assert value["checks"] == [{"name": "a", "verdict": "ok", "detail": "1 of 1"}]
    assert value["receipts"] == {"cold": {"mac": "0"}}
