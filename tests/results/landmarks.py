"""SOML over dimensions: a sparse metric for each landmark, judged key by key.

After Gao, Hoi, Zhang, Wan, Li: SOML, AAAI 2014, tables 1 to 9: for each landmark of Oxford5K a diagonal
metric of its own is learned from 7 of its pictures and 500 others, 7 x 6 x 500 = 21,000 triplets, over bags
of 10,000 to a million visual words; measured are mAP, the share of weights that are 0, and seconds. Here a
landmark is a class: of photos and of Fashion-MNIST in visual words, of customer questions in hashed letters.
Each is a key with a model of its own, and validation says for each which ranking answers: what was learned,
as the paper scores it or as it is served, or tf-idf. The test part is looked at once.

`python -m tests.results.landmarks`; every cell (a set and a seed) is kept in .cache/results/landmarks.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from daemon.demo.pack_files import load_pack, load_thumbnails
from learners import OasisDiagonal, SomlDa, SomlDaConfig, SomlTg
from learners.measures import RELEVANT_LAST, average_precision, ranks_of
from learners.soml import ZERO, DiagonalLearner
from tests.quality.bench.sets import Floats, Ints, load, texts
from tests.results.visual_words import Vocabulary, pieces_of

CACHE = Path(__file__).parents[2] / ".cache" / "results" / "landmarks"
VERSION = 1
DIMENSIONS = (1_000, 10_000, 100_000, 1_000_000)
SEEDS = 3
LANDMARKS = 11
"""Classes that are learned, at most: Oxford5K has as many landmarks."""
POSITIVES, NEGATIVES = 7, 500
QUERIES = 20
"""Of a landmark, in each of the two parts that judge, at most."""
POOL_SHARE, VALIDATION_SHARE = 0.5, 0.2
"""Of a set: what is learned from, words included, and what chooses; the rest is tested on."""
OASIS_STEPS = 100_000
"""The paper's: OASIS goes over the triplets about five times, SOML once."""

LEARNERS: Mapping[str, Callable[[int], DiagonalLearner[Any]]] = {
    "OASIS-diagonal": OasisDiagonal,  # C = 0.1
    "SOML-TG": SomlTg,  # eta = 1, lambda = 1e-5
    "SOML-DA": lambda dim: SomlDa(dim, SomlDaConfig(gamma=1e-4)),  # rho = 1, lambda = 1e-6
}
"""With the paper's constants."""
TFIDF, LEARNED, SERVED = "tf-idf", "w", "served"


@dataclass(frozen=True, eq=False)
class BagSet:
    """spaces: dimension -> rows of unit length, CSR float32 [n, dimension], tf-idf by the pool. labels: int64
    [n]; pool, validation, test: rows, int64."""

    name: str
    spaces: Mapping[int, sparse.csr_array]
    labels: Ints
    pool: Ints
    validation: Ints
    test: Ints


@dataclass(frozen=True)
class Metric:
    """What one learner of one landmark at one dimension gave. zeros: share of all weights; zeros_in_use: of
    the columns in use, which its triplets hold. seconds: of a processor. validation, test: mAP by ranking."""

    dimension: int
    learner: str
    landmark: int
    in_use: int
    zeros: float
    zeros_in_use: float
    seconds: float
    validation: dict[str, float]
    test: dict[str, float]

    @property
    def answers(self) -> str:
        """The ranking that validation chose; tf-idf where none is better."""
        return max((TFIDF, SERVED, LEARNED), key=lambda name: self.validation[name])


def _weighed(counts: sparse.csr_array, pool: Ints) -> sparse.csr_array:
    """tf-idf rows of unit length, by the frequencies of the pool."""
    found: sparse.csr_array = TfidfTransformer().fit(counts[pool]).transform(counts).tocsr()
    found.sort_indices()
    return found.astype(np.float32)


def _parts(count: int) -> tuple[Ints, Ints, Ints]:
    order = np.random.default_rng(2014).permutation(count)
    ends = np.cumsum([round(POOL_SHARE * count), round(VALIDATION_SHARE * count)])
    pool, validation, test = np.split(order, ends)
    return np.sort(pool), np.sort(validation), np.sort(test)


def _of_pictures(name: str, pictures: Sequence[Any], labels: Ints, stride: int) -> BagSet:
    pool, validation, test = _parts(len(labels))
    pieces = pieces_of(pictures, stride)
    words = Vocabulary(pieces.of_pictures(pool).vectors, DIMENSIONS[0], len(DIMENSIONS), seed=0)
    bags = words.bags(pieces, len(labels))
    spaces = {size: _weighed(bag, pool) for size, bag in zip(words.sizes, bags, strict=True)}
    return BagSet(name, spaces, labels, pool, validation, test)


def photos() -> BagSet:
    """The demo's 3,409 photos of clothes, 96 pixels high, in gray."""
    pictures = [np.asarray(Image.open(io.BytesIO(one)).convert("L")) for one in load_thumbnails()]
    return _of_pictures("photos", pictures, np.unique(load_pack().labels, return_inverse=True)[1], 4)


def fashion() -> BagSet:
    """4,000 pictures of clothes, 28 pixels high."""
    data = load("fashion")
    rows = data.views["pixels"]
    gray = np.rint(255 * rows / rows.max(axis=1, keepdims=True)).astype(np.uint8)  # nearly all reach 255
    return _of_pictures("fashion", list(gray.reshape(-1, 28, 28)), data.labels, 2)


def questions() -> BagSet:
    """5,000 customer questions as hashed runs of 2 to 6 letters."""
    labels = load("tfidf").labels
    pool, validation, test = _parts(len(labels))
    spaces = {}
    for size in DIMENSIONS:
        hashed = HashingVectorizer(
            analyzer="char_wb", ngram_range=(2, 6), n_features=size, alternate_sign=False, norm=None
        )
        spaces[size] = _weighed(sparse.csr_array(hashed.transform(texts())), pool)
    return BagSet("questions", spaces, labels, pool, validation, test)


SETS: Mapping[str, Callable[[], BagSet]] = {"photos": photos, "fashion": fashion, "questions": questions}


@cache
def bags_of(name: str) -> BagSet:
    """The set of that name: what takes long, the spaces of pictures, is kept."""
    folder = CACHE / f"{name}-spaces-{VERSION}"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = SETS[name]()
        for size, rows in made.spaces.items():
            sparse.save_npz(folder / f"{size}.npz", rows)
        np.savez(
            folder / "rows.npz", labels=made.labels, **dict(zip(PARTS, _parts(len(made.labels)), strict=True))
        )
        (folder / "done").touch()
    rows = np.load(folder / "rows.npz")
    spaces = {size: sparse.csr_array(sparse.load_npz(folder / f"{size}.npz")) for size in DIMENSIONS}
    return BagSet(name, spaces, rows["labels"], *(rows[part] for part in PARTS))


PARTS = ("pool", "validation", "test")


def landmarks_of(data: BagSet) -> list[int]:
    """The classes that are learned: those with the most objects that can teach."""
    counts = np.bincount(data.labels[data.pool])
    return np.sort(np.argsort(-counts, kind="stable")[:LANDMARKS]).tolist()


def triplets_of(data: BagSet, landmark: int, seed: int) -> tuple[Ints, Ints, Ints]:
    """All triplets of 7 drawn objects of the landmark, two of them and one of 500 others, in random order:
    query, clicked and skipped rows."""
    rng = np.random.default_rng((seed, landmark))
    own = data.labels[data.pool] == landmark
    right = rng.permutation(data.pool[own])[:POSITIVES]
    wrong = rng.permutation(data.pool[~own])[:NEGATIVES]
    q, c, s = (axis.ravel() for axis in np.meshgrid(right, right, wrong, indexing="ij"))
    kept = rng.permutation(np.flatnonzero(q != c))
    return q[kept], c[kept], s[kept]


def mean_ap(
    scores: Callable[[Ints, Ints], Floats], labels: Ints, landmark: int, part: Ints, seed: int
) -> float:
    """mAP of the landmark's queries in a part over all of it; ties go to the others."""
    right = np.flatnonzero(labels[part] == landmark)
    asked = np.random.default_rng((seed, landmark, len(part))).permutation(right)[:QUERIES]
    table = scores(part[asked], part)
    each = [
        average_precision(ranks_of(row, right[right != own], own, ties=RELEVANT_LAST))
        for row, own in zip(table, asked.tolist(), strict=True)
    ]
    return float(np.mean(each))


def learn(data: BagSet, dimension: int, name: str, landmark: int, seed: int) -> Metric:
    """One metric, learned and judged."""
    X = data.spaces[dimension]
    rows = triplets_of(data, landmark, seed)
    q, c, s = (X[each] for each in rows)
    learner = LEARNERS[name](dimension)
    began = time.process_time()
    learner.learn_many(q, c, s)
    if name == "OASIS-diagonal":
        for left in range(len(rows[0]), OASIS_STEPS, len(rows[0])):
            some = slice(min(len(rows[0]), OASIS_STEPS - left))
            learner.learn_many(q[some], c[some], s[some])
    seconds = time.process_time() - began
    in_use = np.unique(np.concatenate([X[np.unique(each)].indices for each in rows]))
    form = learner.form()
    rankings: dict[str, Callable[[Ints, Ints], Floats]] = {
        TFIDF: lambda asked, all_: (X[asked] @ X[all_].T).toarray(),
        LEARNED: lambda asked, all_: learner.similarity(X[asked], X[all_]),
        SERVED: lambda asked, all_: form.scores(X[asked], X[all_]),
    }
    of_validation, of_test = (
        {ranking: mean_ap(scores, data.labels, landmark, part, seed) for ranking, scores in rankings.items()}
        for part in (data.validation, data.test)
    )
    zeros = np.abs(learner.weights()[in_use]) <= ZERO
    return Metric(
        dimension,
        name,
        landmark,
        len(in_use),
        learner.sparsity(),
        float(zeros.mean()),
        seconds,
        of_validation,
        of_test,
    )


def kept(name: str, seed: int) -> list[Metric] | None:
    """What was measured of a set and a seed, None where nothing was."""
    path = CACHE / f"{name}-{seed}.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    return [Metric(**one) for one in found["metrics"]] if found["version"] == VERSION else None


def measure(seeds: int, sets: Sequence[str] = tuple(SETS)) -> None:
    """Every cell that is not there yet, seed by seed."""
    for seed in range(min(seeds, SEEDS)):
        for name in sets:
            if kept(name, seed) is not None:
                continue
            data = bags_of(name)
            learn(data, DIMENSIONS[0], "SOML-DA", landmarks_of(data)[0], seed)  # compiles
            found = []
            for dimension in DIMENSIONS:
                for landmark in landmarks_of(data):
                    found += [learn(data, dimension, learner, landmark, seed) for learner in LEARNERS]
                print(f"{name}, seed {seed}, {dimension:,} dimensions", file=sys.stderr, flush=True)
            CACHE.mkdir(parents=True, exist_ok=True)
            whole = {"version": VERSION, "metrics": [asdict(one) for one in found]}
            (CACHE / f"{name}-{seed}.json").write_text(json.dumps(whole), encoding="utf-8")


def lines(sets: Sequence[str] = tuple(SETS)) -> Iterator[str]:
    """A table for each set, from what was measured."""
    for name in sets:
        cells = [cell for seed in range(SEEDS) if (cell := kept(name, seed)) is not None]
        if cells:
            yield from table(name, [one for cell in cells for one in cell], len(cells))


HEAD = (
    *("dimension", "in use", "learner", "tf-idf", "w", "served", "judged", "learned answers"),
    *("zeros %", "in use %", "seconds"),
)


def table(name: str, metrics: Sequence[Metric], seeds: int) -> Iterator[str]:
    """Means over landmarks and seeds, by dimension and learner."""
    landmarks = len({one.landmark for one in metrics})
    yield f"**{name}**: {landmarks} landmarks, {seeds} seeds"
    yield ""
    yield f"| {' | '.join(HEAD)} |"
    yield "|" + "---|" * len(HEAD)
    for dimension in DIMENSIONS:
        for learner in LEARNERS:
            found = [one for one in metrics if (one.dimension, one.learner) == (dimension, learner)]
            if found:
                yield f"| {dimension:,} | {' | '.join(_cells(learner, found))} |"
    yield ""


def _cells(learner: str, found: Sequence[Metric]) -> Iterator[str]:
    yield f"{np.mean([one.in_use for one in found]):,.0f}"
    yield learner
    for ranking in (TFIDF, LEARNED, SERVED):
        yield f"{np.mean([one.test[ranking] for one in found]):.3f}"
    yield f"{np.mean([one.test[one.answers] for one in found]):.3f}"
    yield f"{100 * np.mean([one.answers != TFIDF for one in found]):.0f} %"
    yield f"{100 * np.mean([one.zeros for one in found]):.2f}"
    yield f"{100 * np.mean([one.zeros_in_use for one in found]):.2f}"
    yield f"{np.mean([one.seconds for one in found]):.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.results.landmarks", description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many, at most {SEEDS}")
    parser.add_argument("--draw-only", action="store_true", help="measure nothing, take what is there")
    asked = parser.parse_args(arguments)
    if not asked.draw_only:
        measure(asked.seeds, asked.sets)
    print("\n".join(lines(asked.sets)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
