"""Kinds of queries that are held out as a whole: whether they are kinds, what they show, and what they cost.

`python -m tests.quality.bench.kinds SET` prints for one kind per seed: mAP and P@10 minus the owner's
ranking, on queries of that kind and on others, with the kind held out and with all learned; and what users
prefer on its lists. `--purity` prints how far kinds are of one class instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daemon.validate.preferences import Preference, by_cluster, differences
from daemon.versions.forms import DEFAULT_FORM
from streams.catalog import Catalog
from streams.event import DenseColumn, SpaceSpec, ViewSpec
from streams.feed.kinds import HeldOutKinds
from tests.quality.bench.backoff import Giving, Learned, scores_of, some
from tests.quality.bench.forms import own_scores
from tests.quality.bench.judged import of_lists, shown
from tests.quality.bench.retrieval import judge
from tests.quality.bench.sets import RawSet, load
from tests.quality.bench.users import split

FORMS = (Giving(1.5, 0.0), Giving.of(DEFAULT_FORM))
CENTRES = 30
Pair = tuple[float, float]


def kind(data: RawSet, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows the feed would hold out, bool [n]."""
    views = {name: np.asarray(view, np.float32) for name, view in data.views.items()}
    space = SpaceSpec(data.name, tuple(ViewSpec(name, "dense", one.shape[1]) for name, one in views.items()))
    catalog = Catalog(data.ids, {name: DenseColumn(one) for name, one in views.items()}, space)
    return np.asarray(HeldOutKinds(catalog, 1, share, seed).rows == 0)


def classes(data: RawSet, count: int, seed: int) -> npt.NDArray[np.bool_]:
    """The rows of so many whole classes, which no feed can know, bool [n]."""
    drawn = np.random.default_rng(seed).choice(np.unique(data.labels), count, replace=False)
    return np.isin(data.labels, drawn)


def purity(name: str, share: float) -> Pair:
    """The share of a kind that is of its largest class, and the share of that class inside; means of
    `CENTRES` kinds."""
    data = load(name)
    sizes, found = np.bincount(data.labels), []
    for seed in range(CENTRES):
        inside = np.bincount(data.labels[kind(data, share, seed)], minlength=len(sizes))
        largest = int(inside.argmax())
        found.append((inside[largest] / inside.sum(), inside[largest] / sizes[largest]))
    first, second = np.mean(found, axis=0)
    return float(first), float(second)


@dataclass(frozen=True)
class Measured:
    """One form, minus the owner's ranking: (mAP, P@10) of queries of the kind and of others, with the kind
    held out and with all learned. preference: what users prefer on the lists of the kind.
    """

    how: Giving
    inside: Pair
    outside: Pair
    inside_learned: Pair
    outside_learned: Pair
    preference: Preference


def measured(name: str, lists: int, apart: npt.NDArray[np.bool_], queries: int) -> Iterator[Measured]:
    """Each form after so many lists, with these rows held out."""
    data, who, own = load(name), split(load(name), 0), own_scores(load(name).joined())
    places = {
        "inside": some(np.flatnonzero(apart).astype(np.int64), queries),
        "outside": some(who.judged[~apart[who.judged]], queries),
    }
    before = {place: np.array(judge(own, data.labels, rows).pair) for place, rows in places.items()}
    without, everything = Learned(data, who, "position", 0, apart), Learned(data, who, "position", 0)
    for learned in (without, everything):
        learned.go_on(lists)
    of_kind = apart[without.held[:, 0]]
    held, clicks = without.held[of_kind], shown(without.held_clicks[of_kind])
    zero = of_lists(own, held)
    for how in FORMS:
        inside: list[Pair] = []
        outside: list[Pair] = []
        for learned in (without, everything):
            scores = scores_of(learned.form(how), learned.space.Z)
            for place, found in (("inside", inside), ("outside", outside)):
                pair = np.array(judge(scores, data.labels, places[place]).pair) - before[place]
                found.append((float(pair[0]), float(pair[1])))
        ranked = of_lists(scores_of(without.form(how), without.space.Z), held)
        values = by_cluster(differences(ranked, zero, clicks), held[:, 0].tolist())
        yield Measured(how, inside[0], outside[0], inside[1], outside[1], Preference.of(values))


def main() -> None:
    """Print a line per seed and form."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.kinds", description=__doc__)
    parser.add_argument("set", choices=["photos", "lsa", "sentences", "digits"])
    parser.add_argument("--lists", type=int, default=8_000)
    parser.add_argument("--share", type=float, nargs="+", default=[0.05])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--classes", type=int, default=0, help="hold out so many whole classes instead")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--purity", action="store_true", help="how far kinds are of one class instead")
    asked = parser.parse_args()
    for share in asked.share:
        if asked.purity:
            of_class, of_it = purity(asked.set, share)
            print(f"{asked.set}, {share:g} of the catalog: {of_class:.2f} of one class, {of_it:.2f} of it")
            continue
        for seed in asked.seeds:
            data = load(asked.set)
            apart = classes(data, asked.classes, seed) if asked.classes else kind(data, share, seed)
            for one in measured(asked.set, asked.lists, apart, asked.queries):
                pairs = (one.inside, one.inside_learned, one.outside, one.outside_learned)
                inside, inside_learned, outside, outside_learned = (
                    f"{mean_ap:+.3f} / {p10:+.3f}" for mean_ap, p10 in pairs
                )
                form = f"power {one.how.power:g}, share {one.how.share:g}"
                print(
                    f"{asked.set}, {apart.mean():.3f}, seed {seed}, {form}: "
                    f"its queries {inside} (all learned {inside_learned}), "
                    f"others {outside} (all learned {outside_learned}), "
                    f"preferred {one.preference.mean:+.4f} (error {one.preference.error:.4f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
