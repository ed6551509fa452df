"""The page in a real browser: what people see, at the width of a desk and of a phone.

Screenshots of each width, light and dark, are left in `.cache/page/` to be looked at.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from daemon.look.overview import KeyRow
from daemon.serve.page.sources import KeysShown
from tests.daemon.serve.page.opening import WIDTHS, fits, opened, photograph, points, wait_for_pictures
from tests.daemon.serve.page.scene import Lists, Scene, Things


def colours(page: Page, chart: str) -> int:
    """How many different colours its canvas has: an empty one has one."""
    script = """(canvas) => {
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return new Set(new Uint32Array(pixels.buffer)).size;
    }"""
    found: int = page.locator(f"#{chart} canvas").evaluate(script)
    return found


@pytest.mark.parametrize(("width", "scheme"), [("desktop", "light"), ("phone", "dark")])
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
        wait_for_pictures(page)
        assert page.evaluate("[...document.images].every((one) => one.naturalWidth)")
        assert fits(page, width)
        photograph(page, f"{width}-{scheme}")


def test_curves_have_their_reference_lines_and_what_was_left_behind(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        legend = page.locator("#measure-chart .u-legend")
        points(page, "measure-chart")
        for name in ("version 0 (cosine)", "version", "left behind", "best"):
            expect(legend.get_by_text(name, exact=True)).to_be_visible()
        expect(page.locator("#measure-note")).to_contain_text("best is version 5 after 2,800 events: 0.480")
        # 4 versions and version 0's 4 on the current line, 3 on the one left behind, the best, one promoted
        # and one gone back to.
        expect(page.locator("#measure-chart")).to_have_attribute("data-points", "14")
        for name in ("promoted", "gone back to"):
            expect(legend.get_by_text(name, exact=True)).to_be_visible()
        page.get_by_label("Measure").select_option("map_shown")
        expect(legend.get_by_text("shown order", exact=True)).to_be_visible()
        expect(page.locator("#measure-title")).to_have_text("mAP inside the shown lists")


def test_a_new_version_appears_by_itself(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        points(page, "measure-chart")
        scene.ledger.append(
            {"kind": "KEEP", "version": 6, "measures": {"events": 4000, "map_full": 0.61, "version_0": {}}}
        )
        expect(page.locator("#measure-chart")).to_have_attribute("data-points", "15")


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


@pytest.mark.parametrize("width", list(WIDTHS))
def test_an_empty_installation_says_what_will_appear(chromium: Browser, tmp_path: Path, width: str) -> None:
    scene = Scene(tmp_path, objects=Things(0))
    scene.series.sample(1e9)
    with scene.page() as address, opened(chromium, address, width) as page:
        expect(page.locator("#measure-chart")).to_contain_text("begins with the first judged version")
        away = page.locator("#away li")
        expect(away).to_have_count(2)  # one line for a role that is away, and no box for each of its numbers
        expect(away.first).to_contain_text("tripletd learn does not answer")
        expect(away.first).to_contain_text("Events learned, Lag, Training loss")
        for title in ("Events learned", "Lag", "Drift"):
            card = page.locator("#live-cards .card").filter(has=page.get_by_role("heading", name=title))
            expect(card.first).to_be_hidden()
        expect(page.locator("#served-table")).to_contain_text("Nothing is served yet")
        expect(page.locator("#sides")).to_contain_text("Appears with the first version")
        expect(page.locator("#versions-table")).to_contain_text(
            "Version 0 appears when tripletd learn starts"
        )
        assert fits(page, width)
        photograph(page, f"{width}-empty")


def test_a_server_that_is_gone_leaves_what_was_shown_and_says_so(chromium: Browser, scene: Scene) -> None:
    with ExitStack() as server:
        address = server.enter_context(scene.page())
        with opened(chromium, address, forgiven=("net::ERR_",)) as page:
            points(page, "measure-chart")
            expect(page.locator("#tiles")).to_contain_text("200 events/s")
            server.close()
            expect(page.locator("#trouble")).to_contain_text(
                "The server does not answer. What you see is from"
            )
            expect(page.locator("#tiles")).to_contain_text("200 events/s")


def test_texts_without_pictures_are_lists(chromium: Browser, tmp_path: Path) -> None:
    scene = Scene(tmp_path, objects=Things(pictures=False))
    scene.learn()
    scene.run()
    with scene.page() as address, opened(chromium, address, "phone") as page:
        expect(page.locator(".side .hits.texts .hit")).to_have_count(20)
        expect(page.locator("img")).to_have_count(0)
        expect(page.locator(".choices .thumb")).to_have_count(0)
        named = "all => all.every(one => one.querySelector('.label').textContent.includes(one.dataset.id))"
        assert page.locator(".side .hit").evaluate_all(named)  # ten objects of one text can be told apart
        narrowest = "all => Math.min(...all.map(one => one.getBoundingClientRect().width))"
        assert page.locator(".side .hit .label").evaluate_all(narrowest) > 60
        assert fits(page, "phone")


def test_keys_have_a_table_where_there_are_any(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        points(page, "measure-chart")
        expect(page.locator("#keys")).to_be_hidden()
    why = "its gain +0.0100 is not above 0.03"
    rows = (KeyRow("anna", 900, "learned", 120, 0.9, 0.8), KeyRow("<b>", 40, "cosine", 130, 0.5, 0.6, why))
    shown = KeysShown("5", 8, 2, (*rows, KeyRow("new", 4)))
    lists = Lists()
    with (
        scene.page(replace(scene.sources, keys=lambda: shown, explorer=lists)) as address,
        opened(chromium, address) as page,
    ):
        expect(page.locator(".side .hit")).to_have_count(20)
        assert set(lists.keys) == {"anna"}
        page.locator("#key").select_option("<b>")
        expect(page.locator("#sides")).not_to_have_attribute("aria-busy", "true")
        assert lists.keys[-1] == "<b>"
        table = page.locator("#keys-table tbody tr")
        expect(table).to_have_count(3)
        expect(table.nth(0)).to_contain_text("anna900120" + "0.900 (0.800)learned")
        expect(table.nth(1)).to_contain_text("<b>")
        expect(table.nth(1)).to_contain_text(f"cosine{why}")
        expect(table.nth(2)).to_contain_text("not judged")
        expect(page.locator("#keys-count")).to_contain_text("2 of 8 models in version 5")


def test_your_own_ranking_is_called_that(chromium: Browser, scene: Scene) -> None:
    own = replace(scene.sources, own=lambda: "inner_product")
    with scene.page(own) as address, opened(chromium, address) as page:
        legend = page.locator("#measure-chart .u-legend")
        expect(legend.get_by_text("your ranking (inner product)", exact=True)).to_be_visible()
        expect(page.locator("#measure-note")).to_contain_text("your ranking (inner product): 0.200")
        expect(page.locator("#left")).to_contain_text("version 0: your ranking (inner product)")
        expect(page.locator("#tiles")).to_contain_text("your ranking: 0.200")
        expect(page.locator(".side .reasons summary").first).to_have_text("yours: 17")


def test_curves_can_be_drawn_over_time(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        drawn = points(page, "measure-chart")
        before = drawn.get_attribute("data-points")
        page.get_by_label("Over").select_option("time")
        expect(page.locator("#measure-chart .u-legend")).to_contain_text("written")
        expect(points(page, "measure-chart")).to_have_attribute("data-points", before or "")
        assert colours(page, "measure-chart") > 10
        photograph(page, "desktop-time")
        page.get_by_label("Over").select_option("events")
        expect(page.locator("#measure-chart .u-legend")).to_contain_text("events")


def test_enter_in_the_search_compares_the_first_that_fits(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        expect(page.locator(".side .hit")).to_have_count(20)
        page.locator("#object").fill("number 23")
        page.locator("#object").press("Enter")
        expect(page.locator("#query")).to_contain_text("object-23")
        expect(page.locator("#choices button[aria-pressed=true]")).to_contain_text("object-23")


def test_the_comparison_is_kept_in_the_address(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        expect(page.locator(".side .hit")).to_have_count(20)
        page.locator("#object").fill("object-12")
        page.locator("#object").press("Enter")
        page.get_by_label("Left").select_option("1")
        page.get_by_label("Results").select_option("5")
        expect(page.locator(".side .hit")).to_have_count(10)
        expect(page.locator("#sides")).not_to_have_attribute("aria-busy", "true")
        shown = page.locator("#sides").inner_text()
        kept = page.url
        assert "object=object-12&left=1&right=latest&k=5" in kept
        page.goto("about:blank")
        page.goto(kept)
        expect(page.locator(".side .hit")).to_have_count(10)
        expect(page.locator("#query")).to_contain_text("object-12")
        expect(page.locator("#left")).to_have_value("1")
        assert page.locator("#sides").inner_text() == shown


def test_a_hit_tells_its_id_and_why_it_is_there(chromium: Browser, scene: Scene) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        expect(page.locator(".side .hit")).to_have_count(20)
        named = "all => all.every(one => one.querySelector('.label').textContent.includes(one.dataset.id))"
        assert page.locator(".side .hit").evaluate_all(named)
        reasons = page.locator(".side .reasons").first
        expect(reasons.locator("summary")).to_have_text("rank 17 in version 0")
        expect(reasons.locator("ul")).to_be_hidden()
        reasons.locator("summary").click()
        expect(reasons).to_contain_text("colour with shape-0.010")
        expect(reasons).to_contain_text("score by version 00.500")
        photograph(page, "desktop-reasons")


def test_pictures_to_choose_from_stay_in_their_buttons_however_long_ids_are(
    chromium: Browser, scene: Scene
) -> None:
    with scene.page() as address, opened(chromium, address) as page:
        first = page.locator("#choices button").first
        expect(first).to_be_visible()
        first.locator(".id").evaluate("one => { one.textContent = '5c9b07a9-ca5a-4086-92a2-4f6a1d83f5bb'; }")
        wide = "one => [one.getBoundingClientRect().width, one.closest('button').clientWidth]"
        for inside in (".thumb", ".id"):
            width, room = first.locator(inside).evaluate(wide)
            assert 0 < width <= room
