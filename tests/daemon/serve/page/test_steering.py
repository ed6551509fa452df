"""What people do with the page: compare, explain, save, with the mouse or the keyboard alone."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, expect

from daemon.models.diff import Diff
from daemon.serve.page.answers import CannotAnswer
from tests.daemon.serve.page.opening import fits, opened, points
from tests.daemon.serve.page.scene import Compared, Scene

FOCUSED = "document.activeElement.id || document.activeElement.tagName"


def label(number: int) -> str:
    """What names an object: its text, and its id beside it."""
    return f"coat number {number} object-{number}"


def test_two_lists_side_by_side_with_what_moved(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        page.get_by_label("Object", exact=True).fill("number 12")
        page.locator("#choices button", has_text="coat number 12").click()
        page.get_by_label("Results").select_option("5")
        left, right = page.locator(".side").first, page.locator(".side").last
        expect(left.locator("h3")).to_have_text("version 0")
        expect(right.locator("h3")).to_have_text("latest: version 5+340")
        expect(left.locator(".hit .label")).to_have_text([label(n) for n in (13, 14, 15, 16, 17)])
        expect(right.locator(".hit .label")).to_have_text([label(n) for n in (15, 18, 21, 24, 27)])
        expect(right.locator(".hit").first).to_have_attribute("data-move", "up")
        expect(right.locator(".hit .move").first).to_have_text("▲ 2")
        expect(left.locator(".hit").first).to_have_attribute("data-move", "only")
        expect(page.locator("#query")).to_contain_text("1 of 5 are in both lists")
        expect(left.locator("img.thumb")).to_have_count(2)
        page.get_by_label("Left").select_option("1")
        expect(left.locator("h3")).to_have_text("version 1")
        expect(left.locator(".hit .label").first).to_have_text(label(14))


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


def test_what_changed_between_the_two_is_told_when_asked_for(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address, "phone") as page:
        expect(page.locator("#diff-title")).to_have_text("What changed from version 0 to latest")
        assert scene.compared.asked == [], "nothing is computed before somebody asks"
        page.get_by_role("button", name="Tell what changed").click()
        told = page.locator("#diff-told")
        expect(told).to_contain_text("changed by 50 % of its size")
        expect(told).to_contain_text("95 % stay, 12 are unchanged; left out: one thing")
        expect(page.locator("#diff-found tbody tr").first).to_contain_text("<script>")
        expect(page.locator("#diff-found")).to_contain_text("rose by 1.5 along +0.7 colour[2], −0.7 shape[1]")
        expect(page.locator("#diff-found").get_by_role("row", name="Negative eigenvalues")).to_contain_text(
            "1 (10 %)"
        )
        assert fits(page, "phone")
        moved = page.locator(".moved li").first
        expect(moved).to_contain_text("8 of 10 stay")
        moved.get_by_role("button").click()
        expect(page.locator("#query strong")).to_contain_text("<img")
        page.get_by_label("Right").select_option("4")
        expect(page.locator("#diff-title")).to_have_text("What changed from version 0 to version 4")
        expect(page.locator("#diff-found")).to_be_empty()
        page.get_by_label("Left").select_option("4")
        expect(page.locator("#diff-ask")).to_be_disabled()


def test_a_comparison_waits_for_the_one_before_it_and_tells_what_went_wrong(
    chromium: Browser, scene: Scene
) -> None:
    class Taken(Compared):
        def difference(self, before: int, after: int) -> Diff | None:
            self.asked.append((before, after))
            if len(self.asked) == 1:
                raise CannotAnswer("busy", "two other versions are being compared")
            raise CannotAnswer("cannot_compare", "the matrix holds no numbers")

    comparer = Taken()
    sources = replace(scene.sources, comparer=comparer)
    with scene.page(sources) as address, opened(chromium, address, forgiven=("503", "422")) as page:
        expect(page.locator("#diff-title")).to_contain_text("What changed from version")  # both are chosen
        page.get_by_role("button", name="Tell what changed").click()
        expect(page.locator("#diff-told")).to_have_text("No comparison: the matrix holds no numbers")
        expect(page.locator("#diff-ask")).to_be_enabled()
        assert len(comparer.asked) == 2


def test_curves_are_saved_as_a_picture_and_as_a_table(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        points(page, "measure-chart")
        with page.expect_download() as saving:
            page.locator("#measure-png").click()
        assert saving.value.suggested_filename == "curve-map_full.png"
        picture = Image.open(io.BytesIO(Path(saving.value.path()).read_bytes())).convert("RGB")
        drawn = page.locator("#measure-chart canvas").bounding_box()
        assert drawn is not None
        assert picture.width > drawn["width"]
        assert picture.height > drawn["height"] + 80, "title, legend and note are on it"
        assert len(np.unique(np.asarray(picture).reshape(-1, 3), axis=0)) > 20
        with page.expect_download() as saving:
            page.get_by_role("link", name="CSV").click()
        assert Path(saving.value.path()).read_text().startswith("line,left,version,records,events")


def test_every_number_is_explained(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        for place in ("#tiles > div", "#live-cards > .card", "figcaption", "section > header h2"):
            expect(page.locator(place).first).to_be_visible()
            without = page.locator(place).filter(has_not=page.locator(".hint"))
            assert without.all_inner_texts() in ([], ["Live"]), place
        words = {one.get_attribute("title") for one in page.locator(".hint").all()}
        assert all(len(said or "") > 60 for said in words)
        page.get_by_role("button", name="What is this: Lag").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#explanation")).to_contain_text("behind the stream")
        page.keyboard.press("Escape")
        expect(page.locator("#explanation")).to_be_hidden()


def test_a_chart_can_be_read_with_the_arrow_keys(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        chart = points(page, "measure-chart")
        at = chart.locator(".u-legend .u-value").first
        expect(at).to_have_text("newest of each")
        chart.focus()
        for key, told in (
            ("ArrowRight", "0 (version 0)"),
            ("ArrowRight", "1,000 (version 1)"),
            ("End", "3,000"),
        ):
            page.keyboard.press(key)
            expect(at).to_contain_text(told)
        page.keyboard.press("Escape")
        expect(at).to_have_text("newest of each")


def test_news_move_nothing_and_take_no_focus(chromium: Browser, scene: Scene) -> None:
    """Newer numbers, then a server that is gone: what somebody reads or is about to press stays in place."""
    places = "[...document.querySelectorAll('section, .card, .tiles > div')].map((one) => one.offsetTop)"
    with scene.page() as address, opened(chromium, address, forgiven=("ERR_",)) as page:
        expect(page.locator(".side .hit")).to_have_count(20)
        points(page, "measure-chart")
        page.get_by_role("button", name="What is this: Lag").first.focus()
        before = page.evaluate(places)
        scene.roles["learn"] = dict(scene.roles["learn"] or {}) | {"lag_events": 9876543}
        scene.series.sample((scene.series.sampled() or 0) + 2)
        expect(page.locator("#tiles")).to_contain_text("9.9M events")
        assert page.evaluate(places) == before
        assert page.evaluate("document.activeElement.ariaLabel") == "What is this: Lag"
        page.route("**/v1/page/**", lambda route: route.abort())
        expect(page.locator("#trouble")).to_contain_text("The server does not answer")
        assert page.evaluate(places) == before
        page.unroute("**/v1/page/**")
        expect(page.locator("#trouble")).to_be_hidden()
