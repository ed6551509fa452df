"""The page in a real browser: what people see and do, at the width of a desk and of a phone.

Screenshots of each width, light and dark, are left in `.cache/page/` to be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.chromium import PATIENCE_MS, ChromiumMissing, browser
from tests.daemon.serve.page.scene import Scene, Things

PICTURES = Path(__file__).parents[4] / ".cache" / "page"
WIDTHS = {"desktop": (1440, 900), "phone": (390, 844)}
FOCUSED = "document.activeElement.id || document.activeElement.tagName"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    try:
        with browser() as started:
            yield started
    except ChromiumMissing as problem:
        pytest.skip(str(problem))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.learn()
    made.run()
    return made


@contextmanager
def opened(chromium: Browser, address: str, width: str = "desktop", scheme: str = "light") -> Iterator[Page]:
    """The page, opened; complaints of the browser and requests to anybody else fail the test at its end."""
    wide, high = WIDTHS[width]
    context = chromium.new_context(viewport={"width": wide, "height": high}, color_scheme=scheme)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on(
        "console", lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(address)
        yield page
        assert complaints == []
        assert [url for url in asked if not url.startswith(f"{address}/")] == []
    finally:
        context.close()


def points(page: Page, chart: str) -> Locator:
    """The chart once it has drawn something."""
    drawn = page.locator(f"#{chart}")
    expect(drawn).to_have_attribute("data-points", re.compile(r"[1-9]\d*"))
    return drawn


def colours(page: Page, chart: str) -> int:
    """How many different colours its canvas has: an empty one has one."""
    script = """(canvas) => {
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return new Set(new Uint32Array(pixels.buffer)).size;
    }"""
    found: int = page.locator(f"#{chart} canvas").evaluate(script)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", list(WIDTHS))
def test_everything_is_shown_at_any_width(chromium: Browser, scene: Scene, width: str, scheme: str) -> None:
    with scene.page() as address, opened(chromium, address, width, scheme) as page:
        expect(points(page, "measure-chart")).to_have_attribute(
            "aria-label", re.compile("best 0.480, version 5")
        )
        points(page, "loss-chart")
        assert colours(page, "measure-chart") > 10
        expect(page.locator("#tiles")).to_contain_text("200 events/s")
        expect(page.locator("#roles")).to_contain_text("learn ready")
        expect(page.locator("#served-table tbody")).to_contain_text("5+340")
        expect(page.locator(".side .hit")).to_have_count(20)
        expect(page.locator("#versions-table tbody tr")).to_have_count(6)
        page.wait_for_function("[...document.images].every((one) => one.complete && one.naturalWidth)")
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0]
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / f"{width}-{scheme}.png", full_page=True)


def test_curves_have_their_reference_lines_and_what_was_left_behind(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        legend = page.locator("#measure-chart .u-legend")
        points(page, "measure-chart")
        for name in ("version 0 (cosine)", "version", "left behind", "best"):
            expect(legend.get_by_text(name, exact=True)).to_be_visible()
        expect(page.locator("#measure-note")).to_contain_text("best is version 5 after 2,800 events: 0.480")
        # 4 versions and version 0's 4 on the current line, 3 on the one left behind, the best.
        expect(page.locator("#measure-chart")).to_have_attribute("data-points", "12")
        page.get_by_label("Measure").select_option("map_shown")
        expect(legend.get_by_text("shown order", exact=True)).to_be_visible()
        expect(page.locator("#measure-title")).to_have_text("mAP inside the shown lists")


def test_a_new_version_appears_by_itself(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        points(page, "measure-chart")
        scene.ledger.append(
            {"kind": "KEEP", "version": 6, "measures": {"events": 4000, "map_full": 0.61, "version_0": {}}}
        )
        expect(page.locator("#measure-chart")).to_have_attribute("data-points", "13")


def test_live_cards_tell_the_newest_number_and_draw_the_series(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        for title, told in {
            "Events learned": "200 events/s",
            "Lag": "12 events, 0.2 s behind",
            "Training loss": "0.400",
            "Drift": "0.400, 1 drift",
        }.items():
            card = page.locator("#live-cards .card").filter(has=page.get_by_role("heading", name=title)).first
            expect(card.locator(".value")).to_have_text(told)
            expect(card.locator("canvas")).to_be_visible()
        fresh = page.locator("#live-cards .card").filter(has_text="Freshness")
        expect(fresh.locator(".u-legend")).to_contain_text("p99, latest")
        letters = page.locator("#live-cards .card").filter(has_text="Dead letters")
        expect(letters).to_contain_text("unknown object")


def test_a_role_that_is_gone_is_shown_as_old(chromium: Browser, scene: Scene) -> None:
    scene.roles["learn"] = None
    scene.series.sample(scene.series.after(0).times[-1] + 2)
    with scene.page() as address, opened(chromium, address) as page:
        expect(page.locator("#roles [data-state=gone]")).to_contain_text("learn does not answer since")
        card = page.locator("#live-cards .card").filter(has_text="Events learned")
        expect(card).to_have_class(re.compile("stale"))
        expect(card.locator(".value")).to_contain_text("last")


def test_live_numbers_that_nobody_renews_are_told_to_be_old(chromium: Browser, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.series.sample(1e9)
    with scene.page() as address, opened(chromium, address) as page:
        expect(page.locator("#clock")).to_have_class(re.compile("late"))
        expect(page.locator("#clock")).to_contain_text("as of 2001-09-09")


def test_two_lists_side_by_side_with_what_moved(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        page.get_by_label("Object", exact=True).fill("number 12")
        page.locator("#choices button", has_text="coat number 12").click()
        page.get_by_label("Results").select_option("5")
        left, right = page.locator(".side").first, page.locator(".side").last
        expect(left.locator("h3")).to_have_text("version 0")
        expect(right.locator("h3")).to_have_text("latest: version 5+340")
        expect(left.locator(".hit .label")).to_have_text([f"coat number {n}" for n in (13, 14, 15, 16, 17)])
        expect(right.locator(".hit .label")).to_have_text([f"coat number {n}" for n in (15, 18, 21, 24, 27)])
        expect(right.locator(".hit").first).to_have_attribute("data-move", "up")
        expect(right.locator(".hit .move").first).to_have_text("▲ 2")
        expect(left.locator(".hit").first).to_have_attribute("data-move", "only")
        expect(page.locator("#query")).to_contain_text("1 of 5 are in both lists")
        expect(left.locator("img.thumb")).to_have_count(2)
        page.get_by_label("Left").select_option("1")
        expect(left.locator("h3")).to_have_text("version 1")
        expect(left.locator(".hit .label").first).to_have_text("coat number 14")


def test_what_an_object_says_is_text_and_never_markup(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        page.get_by_label("Object", exact=True).fill("onerror")
        page.locator("#choices button", has_text="onerror").click()
        expect(page.locator("#query strong")).to_contain_text("<script>")
        page.get_by_label("Object", exact=True).fill("object-2")
        expect(page.locator(".side .hit .label").first).to_contain_text("<script>")
        assert page.title() == "tripletd"


def test_all_of_it_can_be_reached_with_the_keyboard(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        expect(page.locator("#choices button").first).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(page.evaluate(FOCUSED))
        assert {"kind", "window", "object", "random", "left", "right", "k"} <= reached
        page.locator("#choices button").nth(2).focus()
        page.keyboard.press("Enter")
        expect(page.locator("#choices button").nth(2)).to_have_attribute("aria-pressed", "true")
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input, select, button')].filter((one) =>"
            " !one.labels?.length && !one.textContent.trim() && !one.ariaLabel).length"
        )
        assert unnamed == 0


@pytest.mark.parametrize("width", list(WIDTHS))
def test_an_empty_installation_says_what_will_appear(chromium: Browser, tmp_path: Path, width: str) -> None:
    scene = Scene(tmp_path, objects=Things(0))
    scene.series.sample(1e9)
    with scene.page() as address, opened(chromium, address, width) as page:
        expect(page.locator("#measure-chart")).to_contain_text("begins with the first judged version")
        expect(page.locator("#live-cards .empty").first).to_contain_text("tripletd learn does not answer")
        expect(page.locator("#served-table")).to_contain_text("Nothing is served yet")
        expect(page.locator("#sides")).to_contain_text("when the server has objects")
        expect(page.locator("#versions-table")).to_contain_text(
            "Version 0 appears when tripletd learn starts"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0]
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / f"{width}-empty.png", full_page=True)


def test_a_server_that_is_gone_leaves_what_was_shown_and_says_so(chromium: Browser, scene: Scene) -> None:
    context = chromium.new_context()
    with scene.page() as address:
        page = context.new_page()
        page.goto(address)
        points(page, "measure-chart")
        expect(page.locator("#tiles")).to_contain_text("200 events/s")
    expect(page.locator("#trouble")).to_contain_text("The server does not answer. What you see is from")
    expect(page.locator("#tiles")).to_contain_text("200 events/s")
    context.close()


def test_texts_without_pictures_are_lists(chromium: Browser, tmp_path: Path) -> None:
    scene = Scene(tmp_path, objects=Things(pictures=False))
    scene.learn()
    scene.run()
    with scene.page() as address, opened(chromium, address, "phone") as page:
        expect(page.locator(".side .hits.texts .hit")).to_have_count(20)
        expect(page.locator("img")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS["phone"][0]
