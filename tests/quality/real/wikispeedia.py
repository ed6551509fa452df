"""Wikispeedia: people who go from article to article by links, towards an article that they were given.

Each click is a list. The query is the target, shown are the links of the page that they are on, clicked is
the link that they took. Nothing is simulated.

**Origin.** Paths, links and subjects of 4,604 articles of Wikipedia for Schools (2007): the data set
"Wikispeedia navigation paths" of SNAP, here from the public repository `angelpras/epfl_ADA_project`, which
holds the articles' texts, too. Whoever publishes on the paths is asked to cite:

- West, Leskovec: Human Wayfinding in Information Networks, WWW 2012
- West, Pineau, Precup: Wikispeedia: An Online Game for Inferring Semantic Distances between Concepts, IJCAI
  2009

**Licence.** None is stated for paths and links; texts are Wikipedia's (GFDL, CC BY-SA). Nothing of it is in
this repository, nor may it be committed to it. Hashed addresses of players are not read.

**What is read:** `paths_unfinished.tsv` alone, the games that were given up, whether or not the clone also
has those that were finished: so the lists are the same in every clone.

**What is inferred.** The order of a page's links is that in which their titles first come in its plain
text, and those whose title does not come are last, by name: close to what was seen, and not exactly that. A
click is at the time at which its game began; within a game in the order of the clicks. Left out are the way
back, pages with one link, links that the page does not have, and games towards an article that is not
there.

Objects are tf-idf of title (twice) and text, brought to 256 dimensions by a truncated SVD. The class of an
article is the first of its subjects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from tests.quality.bench.sets import Floats, Ints, unit
from tests.quality.real.clones import GitClone
from tests.quality.real.lists import RealSet, clicked_lists, learned_count

GRAPH, ARTICLES = "data/wikispeedia_paths-and-graph", "data/plaintext_articles"
COMPONENTS = 256
BACK = "<"

Links = Mapping[str, Sequence[str]]
Row = tuple[int, int, list[int], int]


def read(clone: GitClone) -> RealSet:
    """The set of a clone of the repository. Raises CloneLacks."""
    texts = {
        unquote(name.removesuffix(".txt")): content.decode("utf-8", "replace")
        for name, content in clone.folder(ARTICLES).items()
    }
    links = links_in_order(_pairs(clone, "links"), texts)
    subjects = defaultdict(list)
    for name, subject in _pairs(clone, "categories"):
        subjects[name].append(subject.removeprefix("subject."))
    ids = sorted({*links, *texts, *(to for every in links.values() for to in every)})
    games = sorted(_games(clone), key=lambda game: game[0])
    rows = list(lists_of(games, links, {name: row for row, name in enumerate(ids)}))
    lists = clicked_lists(rows)
    about = {"commit": clone.commit(), "games": len(games), "texts": len(texts)}
    labels = _classes([subjects[name][:1] for name in ids])
    views = {"text": _vectors([f"{title_of(n)} {title_of(n)} {texts.get(n, '')}" for n in ids])}
    return RealSet("wikispeedia", ids, views, lists, learned_count(len(lists)), labels, about)


def title_of(name: str) -> str:
    """An article's name as people read it."""
    return name.replace("_", " ")


def links_in_order(pairs: Sequence[tuple[str, str]], texts: Mapping[str, str]) -> Links:
    """The links of each page in the order in which its text mentions them first."""
    links = defaultdict(list)
    for page, to in pairs:
        links[page].append(to)
    return {page: _in_order(every, texts.get(page, "").lower()) for page, every in links.items()}


def _in_order(names: Sequence[str], text: str) -> Sequence[str]:
    at = {name: text.find(title_of(name).lower().split(" (")[0]) for name in names}
    return sorted(names, key=lambda name: (at[name] < 0, at[name], name))


def lists_of(
    games: Sequence[tuple[int, Sequence[str], str]], links: Links, rows: Mapping[str, int]
) -> Iterator[Row]:
    """Games (second, path, target) in order of time -> a list for each click that can be one."""
    for second, path, target in games:
        if target not in rows:
            continue
        pages = [path[0]]
        for step, to in enumerate(path[1:]):
            if to == BACK:
                pages = pages[:-1] or pages
                continue
            shown = links.get(pages[-1], ())
            pages.append(to)
            if to in shown and len(shown) > 1:
                # a step counts as a millisecond, or games that began close together would be mixed
                yield 1000 * second + step, rows[target], [rows[one] for one in shown], shown.index(to)


def _games(clone: GitClone) -> Iterator[tuple[int, list[str], str]]:
    for _, second, _, path, target, *_ in _table(clone, "paths_unfinished"):
        yield int(second), [unquote(name) for name in path.split(";")], unquote(target)


def _pairs(clone: GitClone, name: str) -> list[tuple[str, str]]:
    return [(unquote(first), unquote(second)) for first, second in _table(clone, name)]


def _table(clone: GitClone, name: str) -> Iterator[list[str]]:
    lines = clone.text(f"{GRAPH}/{name}.tsv").splitlines()
    return (line.split("\t") for line in lines if line and not line.startswith("#"))


def _classes(subjects: Sequence[Sequence[str]]) -> Ints:
    names = sorted({name for every in subjects for name in every})
    return np.array([names.index(every[0]) if every else -1 for every in subjects], np.int64)


def _vectors(texts: Sequence[str]) -> Floats:
    terms = TfidfVectorizer(
        min_df=3, max_df=0.3, max_features=40_000, sublinear_tf=True, stop_words="english", dtype=np.float32
    )
    table = terms.fit_transform(texts)
    svd = TruncatedSVD(min(COMPONENTS, table.shape[1] - 1), n_iter=4, random_state=0)
    return unit(svd.fit_transform(table))
