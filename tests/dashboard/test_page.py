"""The page in a real browser, over a real fleet, and over a head whose every text is hostile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from dashboard.conftest import API_KEY, Watched, check, viewers, watch
from dashboard.hostile import MARKUP, TEMPLATE
from flows.heads import try_until, wait_until
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt
from kakeya_ops.serving.counters import DESCRIPTIONS, CounterName

pytestmark = pytest.mark.system("chromium")
LOOK_SECONDS = 0.2


def figure(seen: Watched, name: str) -> int:
    """The number that the page shows as `name`."""
    found = re.match(r"[\d,]+", seen.text(f"[data-value={name}]"))
    assert found, seen.text(f"[data-value={name}]")
    return int(found[0].replace(",", ""))


def wait_for_summary(seen: Watched, fleet: LoopbackFleet) -> dict[str, Any]:
    """What the API says, once the page says the same of requests and decoded tokens."""

    def same() -> dict[str, Any] | None:
        summary = fleet.head.get("/v1/network/summary")
        wanted = {name: f"{summary['counters'][name]:,}" for name in ("requests", "tokens_decoded")}
        seen.page.wait_for_timeout(LOOK_SECONDS * 1000)  # also lets the browser's events in
        return summary if all(seen.text(f"[data-value={name}]") == said for name, said in wanted.items()) else None

    return try_until(same, "the page's agreement", int(60 / LOOK_SECONDS))


def test_updates_come_without_a_reload(seen: Watched, fleet: LoopbackFleet) -> None:
    wait_for_summary(seen, fleet)
    before = figure(seen, "requests")
    seen.page.evaluate("window.same = true")
    fleet.head.complete(fresh_prompt(100))
    assert wait_for_summary(seen, fleet)["counters"]["requests"] == before + 1
    assert figure(seen, "requests") == before + 1
    assert seen.page.evaluate("window.same")


def test_the_last_request_is_the_apis_with_its_gain_and_every_step(seen: Watched, fleet: LoopbackFleet) -> None:
    completion, _ = fleet.head.complete(fresh_prompt(400), "remote")
    script = f"document.querySelector('.request .id')?.textContent === '{completion.request_id}'"
    seen.expect(script, "the request")
    told = fleet.head.get("/v1/network/prefill")["requests"][0]
    assert told["request_id"] == completion.request_id
    assert seen.text(".request .sentence") == told["gain_sentence"]
    assert seen.text(".request .gain") == {"none": "no gain"}.get(told["gain"], told["gain"])
    assert "400 prompt tokens, 0 cached" in seen.text(".request .request-head")
    [first, *_] = seen.page.locator(".request").all()
    assert first.locator(".spans .name").all_inner_texts() == [span["step"] for span in told["timeline"]]
    assert first.locator(".track .part").count() == len(told["timeline"])


def test_a_request_under_way_is_shown_until_it_ends(seen: Watched, fleet: LoopbackFleet) -> None:
    wait_for_summary(seen, fleet)
    assert "No request is under way." in seen.text("#live .idle")
    with fleet.head.started(fresh_prompt(300), max_tokens=4000):
        seen.expect("document.querySelector('#live tbody td')?.textContent === 'decode'", "decoding")
        assert "decoded after 300" in seen.text("#live tbody tr")
        assert seen.page.get_by_role("progressbar").get_attribute("aria-valuenow") == "100"
    seen.expect("document.querySelector('#live tbody').childElementCount === 0", "the end")


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


def test_a_worker_that_dies_is_shown(seen: Watched, fleet: LoopbackFleet) -> None:
    seen.expect("document.querySelector('.peer .state').textContent === 'usable'", "the worker")
    fleet.end("worker")
    seen.expect("document.querySelector('.peer .state').textContent === 'unreachable'", "its end")
    assert seen.text(".peer .trouble")
    assert seen.text(".status") == "Worker is unreachable"
    fleet.restart("worker")
    seen.expect("document.querySelector('.status').textContent === 'Every node is usable'", "its return")


def test_sections_are_named_by_their_headings(seen: Watched) -> None:
    for section in seen.page.locator("main section").all():
        name = section.get_attribute("aria-labelledby")
        assert section.locator(f"h2#{name}").count() == 1


def test_tables_have_headings_of_columns_and_rows(seen: Watched) -> None:
    table = seen.page.locator("#counters table")
    assert table.locator("thead th[scope=col]").count() == 4
    rows = table.locator("tbody tr").count()
    assert rows > 20
    assert table.locator("tbody th[scope=row]").count() == rows


def test_what_does_not_change_is_not_sent(seen: Watched) -> None:
    sent: list[str] = []
    page = seen.context.new_page()
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: sent.append(str(frame))))
    page.goto(seen.page.url)
    page.locator("#totals .value").first.wait_for()
    page.wait_for_function("/^\\d/.test(document.querySelector('[data-value=requests]').textContent)")
    start = len(sent)

    def updates() -> list[str] | None:
        page.wait_for_timeout(LOOK_SECONDS * 1000)
        later = [frame for frame in sent[start:] if "update" in frame]
        return later if len(later) >= 3 else None

    later = try_until(updates, "a few updates", int(60 / LOOK_SECONDS))
    assert not any("Prompt tokens" in frame for frame in later)
    page.close()


def test_whoever_listens_or_types_finds_everything(seen: Watched) -> None:
    page = seen.page
    assert page.locator("body > #app > div > header, .nicegui-layout > header").count() == 1
    assert page.locator("main").count() == page.locator("header").count() == page.locator("h1").count() == 1
    assert page.locator("html").get_attribute("lang") == "en-US"
    headings = seen.texts("h2")
    assert headings == ["Totals", "Fleet", "The last five minutes", "Under way", "Last requests", "All counters"]
    for number, heading in enumerate(headings):
        assert page.get_by_role("region", name=heading, exact=True).count() >= 1, number
    assert page.locator("table").count() == page.locator("table > caption").count() == 2
    for chart in page.locator(".plot").all():
        assert chart.get_attribute("role") == "img"
        assert re.search(r", now: .+", chart.get_attribute("aria-label") or "")
    page.get_by_role("button", name="Log out").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Enter")
    assert page.locator("#counters table").is_visible()
    page.keyboard.press("Enter")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_it_fits_the_screen_and_follows_the_systems_scheme(
    seen: Watched, fleet: LoopbackFleet, scheme: Any, width: int
) -> None:
    seen.page.emulate_media(color_scheme=scheme)
    seen.page.set_viewport_size({"width": width, "height": 900})
    fleet.head.complete(fresh_prompt(300), "remote")
    wait_for_summary(seen, fleet)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    ground, text = seen.page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert (_lightness(ground) > _lightness(text)) is (scheme == "light")
    seen.keep(f"{scheme}-{width}")
    seen.page.set_viewport_size({"width": 1280, "height": 900})


def _lightness(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_the_door_of_a_real_head(browser: Browser, fleet: LoopbackFleet) -> None:
    context = browser.new_context(color_scheme="light", viewport={"width": 400, "height": 700})
    watched = watch(context)
    watched.page.goto(fleet.head.url)
    assert watched.page.url == f"{fleet.head.url}/login"
    watched.keep("login")
    watched.page.get_by_label("API key").fill("not-the-key-of-this-head")
    watched.page.get_by_role("button", name="Log in").click()
    assert "none of this head's API keys" in watched.page.get_by_role("alert").inner_text()
    assert context.cookies() == []
    watched.page.get_by_label("API key").fill(API_KEY)
    watched.page.get_by_role("button", name="Log in").click()
    watched.page.get_by_role("heading", name="Totals").wait_for()
    [cookie] = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert watched.page.evaluate("document.cookie") == ""
    assert API_KEY not in watched.page.content()
    watched.page.get_by_role("button", name="Log out").click()
    watched.page.get_by_label("API key").wait_for()
    assert watched.page.url == f"{fleet.head.url}/login"
    watched.faults = [fault for fault in watched.faults if "401" not in fault]  # the wrong key
    check(watched, fleet.head.url)
    context.close()


@pytest.fixture
def look(browser: Browser, hostile_url: str) -> Iterator[Callable[[], Watched]]:
    """Opens the hostile head's dashboard in a window of its own."""
    contexts = []

    def open_window() -> Watched:
        contexts.append(browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900}))
        watched = watch(contexts[-1])
        watched.page.goto(hostile_url)
        watched.expect("document.querySelector('[data-value=requests]')?.textContent === '1,204'", "a figure")
        return watched

    yield open_window
    for context in contexts:
        context.close()


def test_values_are_text_and_never_anything_else(look: Callable[[], Watched], hostile_url: str) -> None:
    watched = look()
    page = watched.page
    for plot in page.locator(".plot").all():
        plot.hover()
    assert watched.value("window.taken") is None
    assert page.locator("main img, main script").count() == 0
    assert MARKUP in watched.text(".peer:nth-child(2) h3")
    assert TEMPLATE in watched.text(".peer:nth-child(2) .trouble")
    assert MARKUP in watched.text(".request .sentence")
    page.set_viewport_size({"width": 400, "height": 900})
    assert watched.value("document.documentElement.scrollWidth") <= 400
    watched.keep("hostile-400")
    check(watched, hostile_url)


def test_a_viewer_who_is_gone_is_forgotten(look: Callable[[], Watched], hostile_url: str) -> None:
    wait_until(lambda: not viewers(hostile_url), "the end of earlier viewers")
    watched = look()
    assert viewers(hostile_url) == 1
    watched.page.close()
    wait_until(lambda: viewers(hostile_url) == 0, "forgetting")
