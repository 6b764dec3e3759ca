"""One browser, one real fleet behind an API key and one hostile head for all tests of the page.

They are there for one module alone: while Playwright is at work its event loop runs in this thread.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from flows.heads import wait_until
from flows.loopback import LoopbackFleet, Plan, Wanted, running
from kakeya_ops.demo.fleet import LOOPBACK, Child
from ports import choose_ports
from system_packages import require

API_KEY = "a-key-of-the-dashboard-tests"
ARTIFACTS = Path(__file__).parents[2] / ".artifacts"


@dataclass
class Watched:
    """A browser's window of which nothing that goes wrong is lost."""

    context: BrowserContext
    page: Page
    faults: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def expect(self, script: str, what: str, seconds: float = 60.0) -> None:
        """Wait until the JavaScript expression `script` is true."""
        __tracebackhide__ = True
        try:
            self.page.wait_for_function(script, timeout=seconds * 1000)
        except PlaywrightError as error:
            pytest.fail(f"{what} was not shown: {error}")

    def value(self, script: str) -> Any:
        """What the JavaScript expression `script` is; after a moment, where the page was just being loaded anew.

        It does that by itself when its connection was lost for a few seconds, as may happen on a crowded machine.
        """
        try:
            return self.page.evaluate(script)
        except PlaywrightError:
            self.page.wait_for_load_state()
            return self.page.evaluate(script)

    def text(self, selector: str) -> str:
        """The text of the first element that `selector` finds."""
        return self.page.locator(selector).first.inner_text()

    def texts(self, selector: str) -> list[str]:
        """The texts of all of them."""
        return self.page.locator(selector).all_inner_texts()

    def keep(self, name: str) -> None:
        """Leave a picture of the whole page among the artifacts."""
        ARTIFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=ARTIFACTS / f"dashboard-{name}.png", full_page=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    program = require("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def watch(context: BrowserContext) -> Watched:
    """A new window of `context`."""
    watched = Watched(context, context.new_page())
    page = watched.page
    page.on("console", lambda said: said.type in ("error", "warning") and watched.faults.append(said.text))
    page.on("pageerror", lambda error: watched.faults.append(str(error)))
    page.on("request", lambda request: watched.requested.append(request.url))
    page.on("websocket", lambda socket: watched.requested.append(socket.url))
    return watched


def check(watched: Watched, origin: str) -> None:
    """Nothing went wrong, and nobody but `origin` was asked for anything."""
    assert watched.faults == []
    sites = {urlsplit(url).netloc for url in watched.requested if urlsplit(url).scheme not in ("data", "blob")}
    assert sites == {urlsplit(origin).netloc}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[LoopbackFleet]:
    """A head that wants a key, with one worker."""
    directory = tmp_path_factory.mktemp("dashboard")
    keys = directory / "keys.yaml"
    keys.write_text(f"{API_KEY}: flows\n")
    keys.chmod(0o600)
    nodes = {"worker": Plan("worker"), "head": Plan("head", api={"keys_file": str(keys)})}
    with running(directory, tiny_llama, Wanted(nodes, api_key=API_KEY)) as fleet:
        fleet.head.wait_for_peer("worker")
        yield fleet


@pytest.fixture(scope="module")
def seen(browser: Browser, fleet: LoopbackFleet) -> Iterator[Watched]:
    """The dashboard of `fleet` after logging in, with figures on it."""
    context = browser.new_context(color_scheme="dark", viewport={"width": 1280, "height": 900})
    watched = watch(context)
    watched.page.goto(fleet.head.url)
    watched.page.get_by_label("API key").fill(API_KEY)
    watched.page.keyboard.press("Enter")
    watched.expect("/^\\d/.test(document.querySelector('[data-value=requests]')?.textContent)", "a figure")
    yield watched
    check(watched, fleet.head.url)
    context.close()


@pytest.fixture(scope="module")
def hostile_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A head of which every text is hostile, in a process of its own."""
    [port] = choose_ports(1)
    log = tmp_path_factory.mktemp("hostile") / "log"
    child = Child("hostile", [sys.executable, "-m", "tests.dashboard.hostile", str(port)], log)
    try:
        wait_until(lambda: "is ready" in log.read_text(), "the start")
        yield f"http://{LOOPBACK}:{port}"
    finally:
        child.signal_group(15)
        assert child.ended_within(15), log.read_text()


def viewers(url: str) -> Any:
    """How many pages the hostile head keeps."""
    return httpx.get(f"{url}/viewers").json()
