"""What could be served from few clicks on, and what that would risk.

`python -m tests.quality.bench.early SET` prints for each variant of the product after how many lists
something was served for the first time, and mAP and P@10 of what is served minus the owner's ranking after
each number of lists. `--forms` prints the same of the newest version in each form, whether served or not.
`--nothing` counts how often something is served where users have no preference.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

import numpy as np

from daemon.validate.choosing import OFFERED
from daemon.versions.forms import FormChoice
from tests.quality.bench.cells import by_default
from tests.quality.bench.product import AS_SHIPPED, VERSIONS, Product, Variant
from tests.quality.bench.retrieval import judge
from tests.quality.bench.sets import SETS, Ints, load
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import CLICKS, NOTHING, split

QUERIES = 400
VARIANTS: Mapping[str, Variant] = {
    "held-out lists alone": Variant(untrained=False),
    "lists learned from, too": AS_SHIPPED,
    "these, and as much of the own ranking": Variant(form=FormChoice(1.5, 1.0)),
    "these, and three times as much": Variant(form=FormChoice(1.5, 3.0)),
    "held-out lists alone, half held out": Variant(untrained=False, share=0.5),
}
FORMS = (*OFFERED, FormChoice(1.5, 3.0), FormChoice(1.5, 10.0), FormChoice(1.0, 3.0))


def product_of(name: str, clicks: str, seed: int, variant: Variant) -> Product:
    """With the settings of the tables."""
    data = load(name)
    how = by_default(name, "position", "static", seed).learning
    return Product(data, clicks, seed, split(data, seed), how, variant)


def served(name: str, clicks: str, seed: int, variant: Variant, marks: Ints) -> tuple[int | None, Ints]:
    """(lists after which something was served first, or None; [mAP, P@10] minus the owner's, [marks, 2])."""
    data, rows = load(name), split(load(name), seed).judged[:QUERIES]
    made, first, found = product_of(name, clicks, seed, variant), None, []
    before = np.array(judge(made.own, data.labels, rows).pair)
    for count in (one for one in VERSIONS if one <= marks[-1]):
        made.go_on(count, own_lists(name))
        if made.best and first is None:
            first = count
        if count in marks:
            is_own = made.best == 0
            found.append(
                np.zeros(2) if is_own else np.array(judge(made.served, data.labels, rows).pair) - before
            )
    return first, np.array(found)


def forms(name: str, clicks: str, seed: int, marks: Ints) -> Iterator[str]:
    """A line for each number of lists and form of the newest version."""
    data, rows = load(name), split(load(name), seed).judged[:QUERIES]
    made = product_of(name, clicks, seed, AS_SHIPPED)
    before = np.array(judge(made.own, data.labels, rows).pair)
    for count in (one for one in VERSIONS if one <= marks[-1]):
        made.go_on(count, own_lists(name))
        if count in marks:
            queries = np.unique(made.learned.held[:, 0])
            for one in FORMS:
                scores = made.version.scores(made.version.with_usual(one, queries))
                pair = np.array(judge(scores, data.labels, rows).pair) - before
                yield f"{count:,} lists, {one.told}: {pair[0]:+.3f} / {pair[1]:+.3f}"


def nothing(name: str, seeds: int, variant: Variant, up_to: int) -> int:
    """In how many of the seeds something is ever served."""
    found = 0
    for seed in range(seeds):
        made = product_of(name, next(iter(NOTHING)), seed, variant)
        for count in (one for one in VERSIONS if one <= up_to):
            made.go_on(count, own_lists(name))
            if made.best:
                found += 1
                break
    return found


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.early", description=__doc__)
    parser.add_argument("set", choices=list(SETS))
    parser.add_argument("--clicks", choices=CLICKS, nargs="+", default=list(CLICKS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--lists", type=int, nargs="+", default=[500, 1_000, 2_000, 4_000])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--forms", action="store_true", help="of all forms instead, served or not")
    parser.add_argument("--nothing", action="store_true", help="users without any preference instead")
    asked = parser.parse_args()
    marks = np.array(sorted(asked.lists))
    if asked.nothing:
        for name in asked.variants:
            count = nothing(asked.set, asked.seeds, VARIANTS[name], marks[-1])
            print(
                f"{asked.set}, {name}: served in {count} of {asked.seeds} runs of {marks[-1]:,} lists",
                flush=True,
            )
        return
    for clicks in asked.clicks:
        if asked.forms:
            for line in forms(asked.set, clicks, 0, marks):
                print(f"{asked.set}, {clicks}, {line}", flush=True)
            continue
        for name in asked.variants:
            for seed in range(asked.seeds):
                first, found = served(asked.set, clicks, seed, VARIANTS[name], marks)
                when = "never" if first is None else f"after {first:,}"
                gains = "; ".join(
                    f"{count:,}: {ap:+.3f} / {p10:+.3f}"
                    for count, (ap, p10) in zip(marks, found, strict=True)
                )
                print(f"{asked.set}, {clicks}, seed {seed}, {name}: served {when}; {gains}", flush=True)


if __name__ == "__main__":
    main()
