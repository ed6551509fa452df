"""A first catalog with clicks, to try tripletd on: `python first_clicks.py FOLDER`. Needs Python alone.

400 things have a shape and a colour, both written down with noise. People who look at one click on things of
the same shape and do not care for colour; the features do not say so, only the clicks do. FOLDER is made,
with items.jsonl (features), clicks.jsonl (lists shown, with their clicks), display.jsonl (what people see),
labels.tsv (the shapes, to judge by) and tripletd.toml.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHAPES = ("circle", "square", "star", "heart")
COLOURS = ("red", "green", "blue", "yellow", "grey")
THINGS, VISITS, SHOWN = 400, 4000, 10
NOISE = 0.35

SETTINGS = """\
# deploy/tripletd.toml explains every key.
[stream]
address = "log:clicks.log"

[space]
warmup_objects = 400

[space.views.x]
kind = "dense"
dim = 9

[catalog]
path = "items.jsonl"

[checkpoints]
every = "2s"

[validate]
judgments = "labels:labels.tsv"

[serve]
display = "display.jsonl"
aliases = ["stable", "latest"]   # latest follows the learner click by click, whether it is better or not
"""


def features(shape: str, colour: str, chance: random.Random) -> list[float]:
    """1 at the shape and at the colour, 0 elsewhere, and noise everywhere; 9 numbers."""
    exact = [float(name in (shape, colour)) for name in (*SHAPES, *COLOURS)]
    return [round(value + chance.gauss(0, NOISE), 3) for value in exact]


def visits(shapes: dict[str, str], chance: random.Random) -> Iterator[dict[str, Any]]:
    """Lists as they were shown, drawn at random, each with the places that were clicked."""
    now, ids = int(time.time() * 1000), list(shapes)
    for number in range(VISITS):
        query, *shown = chance.sample(ids, SHOWN + 1)
        clicked = [
            place
            for place, one in enumerate(shown)
            if chance.random() < (0.7 if shapes[one] == shapes[query] else 0.05)
        ]
        ts = now - VISITS + number
        yield {"id": f"visit-{number}", "ts": ts, "q": query, "shown": shown, "clicked": clicked}


def main(folder: Path) -> None:
    """Write the five files. FileExistsError: the folder is there already."""
    chance = random.Random(0)  # noqa: S311  nothing here is secret
    things = {f"thing-{n}": (chance.choice(SHAPES), chance.choice(COLOURS)) for n in range(THINGS)}
    items = [{"id": name, "x": features(*thing, chance)} for name, thing in things.items()]
    display = [
        {"id": name, "title": f"{colour} {shape}", "tags": [shape, colour]}
        for name, (shape, colour) in things.items()
    ]
    shapes = {name: shape for name, (shape, _) in things.items()}
    folder.mkdir(parents=True)
    lines = {"items.jsonl": items, "clicks.jsonl": visits(shapes, chance), "display.jsonl": display}
    for name, rows in lines.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "labels.tsv").write_text("".join(f"{name}\t{shape}\n" for name, shape in shapes.items()))
    (folder / "tripletd.toml").write_text(SETTINGS)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python first_clicks.py FOLDER")
    try:
        main(Path(sys.argv[1]))
    except OSError as error:
        sys.exit(f"{sys.argv[1]}: {error.strerror}; name a folder that is not there yet and can be made")
