"""Rating in a real browser: by keys and by touch, and its report. Screenshots are left to be looked at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from daemon.ratings.kept import read_ratings
from tests.daemon.serve.page.opening import fits, opened, photograph, points, wait_for_pictures
from tests.daemon.serve.page.rated import FOUND, rated_sources
from tests.daemon.serve.page.scene import Scene, Things


def begin(page: Page, name: str = "Anna") -> None:
    page.get_by_label("Your name or initials").fill(name)
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("#counted")).to_have_text("1 of 3")


def test_everything_can_be_done_by_keys(chromium: Browser, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.page(rated_sources(scene)) as address, opened(chromium, address) as page:
        page.goto(f"{address}/rate")
        begin(page)
        expect(page.locator(".result")).to_have_count(15)
        ids = page.locator(".result input").evaluate_all("(all) => all.map((one) => one.value)")
        page.keyboard.press("c")
        page.keyboard.press("ArrowRight")
        page.keyboard.press(" ")
        page.keyboard.press("a")
        page.keyboard.press("a")  # and off again
        expect(page.locator("#marked")).to_have_text("2 of 15 marked relevant")
        wait_for_pictures(page)
        assert fits(page, "desktop")
        photograph(page, "rate-desktop-light")
        page.keyboard.press("Enter")
        expect(page.locator("#counted")).to_have_text("2 of 3")
        assert page.title() == "Rate \u00b7 tripletd", "the query's text is markup, shown as text"
        page.keyboard.press("Enter")  # nothing is marked: it asks once more
        expect(page.locator("#next")).to_have_text("Yes, none of them")
        page.keyboard.press("Enter")
        expect(page.locator("#counted")).to_have_text("3 of 3")
        page.reload()  # who rates, and how far, is remembered
        expect(page.locator("#counted")).to_have_text("3 of 3")
        page.keyboard.press("b")
        page.keyboard.press("Enter")
        expect(page.locator("#said")).to_contain_text("Thank you")
        said = {one.query: one for one in read_ratings(scene.folder / "ratings.jsonl").of("first")}
        assert list(said) == list(FOUND)
        assert said["object-10"].relevant == {ids[2], ids[3]}
        assert [one.id for one in said["object-10"].results] == ids, "as they were shown"
        assert not said["object-3"].relevant
        page.get_by_role("button", name="Not you?").click()
        begin(page, "Ben")
        page.evaluate("localStorage.clear()")


@pytest.mark.parametrize("pictures", [True, False])
def test_a_phone_shows_pictures_or_texts_and_the_report(
    chromium: Browser, tmp_path: Path, pictures: bool
) -> None:
    scene = Scene(tmp_path, objects=Things(pictures=pictures))
    sources = rated_sources(scene)
    with scene.page(sources) as address, opened(chromium, address, "phone", "dark") as page:
        page.goto(f"{address}/rate")
        begin(page)
        page.locator(".result").nth(1).click()
        page.locator(".result").nth(2).click()
        expect(page.locator("#marked")).to_have_text("2 of 15 marked relevant")
        expect(page.locator(".result img")).to_have_count(7 if pictures else 0)
        wait_for_pictures(page)
        assert fits(page, "phone")
        photograph(page, f"rate-phone-{'pictures' if pictures else 'texts'}")
        page.get_by_role("button", name="Next").click()
        expect(page.locator("#counted")).to_have_text("2 of 3")
        page.locator(".result").nth(0).click()
        page.get_by_role("button", name="Next").click()
        expect(page.locator("#counted")).to_have_text("3 of 3")
        page.evaluate("localStorage.clear()")
        page.goto(f"{address}/rate/report")
        expect(points(page, "chart")).to_have_attribute("aria-label", re.compile("stable"))
        expect(page.locator("#ranks tbody tr")).to_have_count(10)
        expect(page.locator("#raters tbody")).to_contain_text("Anna")
        assert fits(page, "phone")
        photograph(page, f"ratings-phone-{'pictures' if pictures else 'texts'}")


def test_a_server_that_does_not_keep_a_rating_is_told_and_marks_stay(
    chromium: Browser, tmp_path: Path
) -> None:
    scene = Scene(tmp_path)
    with (
        scene.page(rated_sources(scene, full=True)) as address,
        opened(chromium, address, forgiven=("503",)) as page,
    ):
        page.goto(f"{address}/rate")
        begin(page)
        page.keyboard.press("d")
        page.keyboard.press("Enter")
        expect(page.locator("#trouble")).to_contain_text("Not kept yet: ratings cannot be kept now")
        expect(page.locator("#marked")).to_have_text("1 of 15 marked relevant")
        page.evaluate("localStorage.clear()")
