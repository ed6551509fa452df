"""Whoever feeds the stream chooses ids, texts and reasons: they stay texts, and they stay inside the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from checkpoints import VersionMeta
from daemon.replica.view import ModelId, ReplicaStatus
from daemon.serve.page.objects import ShownObject
from daemon.serve.page.sources import NearestObjects
from tests.daemon.serve.page.opening import WIDTHS, fits, opened, photograph
from tests.daemon.serve.page.scene import MARKUP, Scene, Things

LONG = "x" * 300
RIGHT_TO_LEFT = "\u202e"
STARTS = [MARKUP, "javascript:document.title='attacked'//", LONG, RIGHT_TO_LEFT]
ATTACKED = (
    "document.title !== 'tripletd' || document.querySelector('main script, main iframe, main [onerror]')"
)
VERSIONS = 31


def names() -> list[str]:
    return [f"{start}{n}" for n in range(10) for start in STARTS]


class Hostile(Things):
    """Objects whose ids and texts are what an attacker would write; every one claims to have a picture."""

    def some(self, text: str, most: int) -> Sequence[ShownObject]:
        return self.shown(names()[:most])

    def shown(self, ids: Sequence[str]) -> Sequence[ShownObject]:
        return [
            ShownObject(one, one[::-1] if number % 2 else one, True, (MARKUP,))
            for number, one in enumerate(ids)
        ]

    def image(self, object_id: str) -> bytes | None:
        return b"<svg xmlns='http://www.w3.org/2000/svg' onload='document.title=1'/>"


class Lists:
    def neighbours(self, side: str, query: str, k: int, key: str | None) -> NearestObjects:
        return NearestObjects(side, tuple((one, 1 - n / 100) for n, one in enumerate(names()[:k])))


@pytest.fixture
def attacked(tmp_path: Path) -> Scene:
    """Many versions with huge numbers, and an attacker's words wherever words come from outside."""
    scene = Scene(tmp_path, objects=Hostile())
    scene.learn()
    epoch = scene.versions.claim()
    while (count := len(scene.versions.versions())) < VERSIONS:
        newest, number = max(scene.versions.versions()), count + 1
        counters = {"updated": number * 10**11, "records": number * 10**11, "loss_sum": number * 1e10}
        meta = VersionMeta(parent=newest, counters=counters)
        scene.versions.publish(epoch, {"W": np.zeros(4, np.float32)}, meta)
    words = f"{MARKUP} {LONG} {RIGHT_TO_LEFT}"
    scene.ledger.append(
        {
            "kind": "KEEP",
            "version": max(scene.versions.versions()),
            "reason": words,
            "measures": {"events": 3e12, "map_full": 0.9},
        }
    )
    scene.ledger.append(
        {"kind": "STOP", "version": max(scene.versions.versions()), "by": words, "reason": words}
    )
    scene.run()
    lag = {"lag_events": 3.4e15, "lag_seconds": 9e9}
    letters = {"dead_letters": {"y" * 200 + "<b>": 7e12}}
    scene.roles["learn"] = dict(scene.roles["learn"] or {}) | lag | letters
    scene.series.sample((scene.series.sampled() or 0) + 2)
    told = ReplicaStatus(words, None, None, words, "versions")
    scene.served = [*scene.served, told, replace(told, alias=LONG, model=ModelId(30, 99999999999999))]
    return scene


@pytest.mark.parametrize("width", list(WIDTHS))
def test_nothing_that_comes_from_outside_runs_or_breaks_out(
    chromium: Browser, attacked: Scene, width: str
) -> None:
    sources = replace(attacked.sources, explorer=Lists())
    with attacked.page(sources) as address, opened(chromium, address, width, forgiven=("404",)) as page:
        expect(page.locator(".side .hit")).to_have_count(20)
        expect(page.locator("#served-table tbody")).to_contain_text("<script>")
        expect(page.locator("#versions-table tbody")).to_contain_text("<script>")
        expect(page.locator("#moves")).to_contain_text("<script>")
        expect(page.locator("#live-cards")).to_contain_text("<b>")
        expect(page.locator("#versions-count")).to_have_text("31 written, 31 kept")
        expect(page.locator("#right option")).to_have_count(VERSIONS + 1)
        page.get_by_role("button", name="Tell what changed").click()
        expect(page.locator("#diff-found tbody tr").first).to_contain_text("<script>")
        expect(page.locator("#choices .thumb").first).to_have_text("no picture")
        assert fits(page, width)
        page.get_by_role("button", name="Show older versions").click()
        expect(page.locator("#versions-table tbody tr")).to_have_count(VERSIONS)
        assert not page.evaluate(ATTACKED)
        photograph(page, f"{width}-hostile")
