"""The totals on the page are those of the API, whatever the fleet did."""

from __future__ import annotations

from dashboard.conftest import Watched
from dashboard.test_page import figure, wait_for_summary
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt
from kakeya_ops.dashboard.totals import Counters, Totals
from kakeya_ops.serving.counters import DESCRIPTIONS, CounterName


def test_the_tiles_show_what_the_api_says_after_remote_jobs_and_hits(seen: Watched, fleet: LoopbackFleet) -> None:
    prompt = fresh_prompt(400)
    fleet.head.complete(prompt, "remote")
    fleet.head.complete(prompt, "remote", "skip-local-pool")
    fleet.head.complete(prompt)
    summary = wait_for_summary(seen, fleet)
    counters, tokens = summary["counters"], summary["tokens"]
    for name in ("requests", "tokens_decoded", "remote_jobs", "remote_hits", "fallbacks"):
        assert figure(seen, name) == counters[name], name
    for name in ("prompt_tokens", "tokens_reused", "tokens_computed_remote", "tokens_computed_local"):
        assert figure(seen, name) == tokens[name], name
    assert counters["remote_jobs"] >= 1
    assert seen.text("[data-value=reused_share]") == f"{100 * tokens['reused_share']:.0f} %"


def test_every_counter_has_its_row(seen: Watched, fleet: LoopbackFleet) -> None:
    seen.page.locator("#counters summary").click()
    summary = wait_for_summary(seen, fleet)
    rows = {row[0]: row for row in (text.split("\t") for text in seen.texts("#counters tbody tr"))}
    assert set(rows) == {name.value for name in CounterName}
    for name in CounterName:
        shown = rows[name.value]
        assert float(shown[1].replace(",", "")) == round(summary["counters"][name], 3), name
        assert shown[3] == DESCRIPTIONS[name]
    if jobs := summary["by_worker"].get("worker", {}).get("remote_jobs"):
        assert rows["remote_jobs"][2] == f"worker {jobs}"
    seen.page.locator("#counters summary").click()


def test_both_are_sections_of_the_page() -> None:
    assert Totals.__doc__
    assert Counters.__doc__
