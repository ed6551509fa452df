"""A study over the objects of the small installation."""

from __future__ import annotations

from dataclasses import replace

from daemon.ratings.kept import RatingsFile
from daemon.ratings.study import Study
from daemon.serve.page.rating import RatingSources
from daemon.serve.page.sources import PageSources
from tests.daemon.ratings.made import study
from tests.daemon.serve.page.scene import Scene

FOUND = {
    "object-10": ([f"object-{n}" for n in range(11, 21)], [f"object-{n}" for n in range(16, 26)]),
    "object-3": ([f"object-{n}" for n in range(20, 30)], [f"object-{n}" for n in range(29, 19, -1)]),
    "object-0": (["object-1", "object-2"], ["object-3"]),
}


def rated_sources(scene: Scene, *, full: bool = False, made: Study | None = None) -> PageSources:
    """What the page is told from, with a study of FOUND; in a full file there is no room for a rating."""
    path = scene.folder / "ratings.jsonl"
    file = RatingsFile(path, 1 << 20)
    if full:
        file.begin(made or study(FOUND))
        file = RatingsFile(path, path.stat().st_size + 10)
    question = "Which of these are relevant to it?"
    ratings = RatingSources("first", question, ("stable", "0"), file, lambda: made or study(FOUND))
    return replace(scene.sources, ratings=ratings)
