"""Real sets with classes, in the vectors that their owners would search: what is compared with is their
cosine.

Several views: the mean of their cosines, so every set is one matrix X of rows of unit length, and X X^T
are the scores of its owner's ranking.
"""

from __future__ import annotations

import csv
import gzip
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from daemon.demo.pack_files import load_pack
from tests.quality.bench.minilm import Sentences

CACHE = Path(__file__).parents[3] / ".cache" / "quality"
TEXTS = Path(__file__).parents[2] / "data" / "banking77" / "train.csv"
TEXTS_KEPT = 5_000
PICTURES_KEPT = 4_000
FASHION = "dataset-fashion-mnist"

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RawSet:
    """views: rows of unit length, one matrix per view, dense [n, d] or CSR. labels: class of each row."""

    name: str
    views: Mapping[str, Any]
    labels: Ints

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sparse(self) -> bool:
        """Whether its only view is CSR."""
        return any(sparse.issparse(view) for view in self.views.values())

    @property
    def ids(self) -> list[str]:
        """A name for each row; the feed decides by it who is held out."""
        return [f"{self.name}-{row}" for row in range(len(self))]

    def joined(self) -> Any:
        """X with X X^T the owner's scores: the views side by side over the square root of their number."""
        views = list(self.views.values())
        if self.sparse:
            return views[0]
        return np.concatenate(views, axis=1) / np.float32(np.sqrt(len(views)))


def unit(rows: npt.NDArray[Any]) -> Floats:
    """Rows brought to unit length; one of zeros stays."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, 1e-12), np.float32)


def _numbers(names: Any) -> Ints:
    return np.unique(np.asarray(names), return_inverse=True)[1].astype(np.int64)


@cache
def _texts() -> tuple[list[str], Ints]:
    with TEXTS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[::2][:TEXTS_KEPT]
    return [row["text"] for row in rows], _numbers([row["category"] for row in rows])


def photos() -> RawSet:
    """3,409 photos of clothes in 10 classes, all five descriptors, 1,243 numbers."""
    pack = load_pack()
    views = {name: unit(np.asarray(view.values, np.float32)) for name, view in pack.catalog.views.items()}
    return RawSet("photos", views, _numbers(pack.labels))


def tfidf() -> RawSet:
    """5,000 customer questions in 77 classes, tf-idf."""
    texts, labels = _texts()
    rows = TfidfVectorizer(min_df=5, sublinear_tf=True).fit_transform(texts).tocsr().astype(np.float32)
    rows.sort_indices()
    return RawSet("tfidf", {"terms": rows}, labels)


def lsa() -> RawSet:
    """The same questions, their tf-idf vectors brought to 200 dimensions by a truncated SVD."""
    rows = TruncatedSVD(200, random_state=0).fit_transform(tfidf().views["terms"])
    return RawSet("lsa", {"lsa": unit(rows)}, _texts()[1])


def sentences() -> RawSet:
    """The same questions as sentence embeddings of 384 dimensions; the first time takes minutes."""
    texts, labels = _texts()
    return RawSet(
        "sentences", {"minilm": _kept("sentences", lambda: Sentences(CACHE / "minilm").encode(texts))}, labels
    )


def digits() -> RawSet:
    """scikit-learn's 1,797 digits of 64 pixels."""
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    return RawSet("digits", {"pixels": unit(rows)}, labels.astype(np.int64))


def fashion() -> RawSet:
    """4,000 pictures of clothes of 784 pixels in 10 classes (Debian's package of Fashion-MNIST)."""

    rows = _kept("fashion", lambda: fashion_bytes("train")[0][:PICTURES_KEPT].astype(np.float32))
    labels = _kept("fashion-labels", lambda: fashion_bytes("train")[1][:PICTURES_KEPT])
    return RawSet("fashion", {"pixels": unit(rows)}, labels)


def fashion_bytes(part: Literal["train", "t10k"]) -> tuple[npt.NDArray[np.uint8], Ints]:
    """All 60,000 or 10,000 pictures, [n, 784], and their classes."""
    pixels = _idx(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    return pixels, _idx(f"{part}-labels-idx1-ubyte.gz", 8).astype(np.int64)


def _idx(name: str, header: int) -> npt.NDArray[np.uint8]:
    """The bytes behind the header of a file in Debian's package, which is fetched but not installed."""
    if not list(CACHE.glob(f"{FASHION}_*.deb")):
        subprocess.run(["apt-get", "download", "-qq", FASHION], cwd=CACHE, check=True)
    (package,) = CACHE.glob(f"{FASHION}_*.deb")
    folder = CACHE / FASHION
    if not folder.exists():
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    (found,) = folder.rglob(name)
    return np.frombuffer(gzip.decompress(found.read_bytes()), np.uint8)[header:]


def _kept(name: str, make: Callable[[], npt.NDArray[Any]]) -> Any:
    """What `make` gives, from the cache if it was made before."""
    path = CACHE / f"{name}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, make())
    return np.load(path)


SETS: Mapping[str, Callable[[], RawSet]] = {
    "photos": photos,
    "tfidf": tfidf,
    "lsa": lsa,
    "sentences": sentences,
    "digits": digits,
    "fashion": fashion,
}


def texts() -> list[str]:
    """The customer questions."""
    return _texts()[0]


@cache
def load(name: str) -> RawSet:
    """The set of that name."""
    return SETS[name]()
