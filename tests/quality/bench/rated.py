"""How often an interval of 95 % in the report of ratings holds the truth.

`python -m tests.quality.bench.rated` prints the table of docs/decisions/065-ratings-by-people.md.

Made studies: the share of relevant places differs between queries by a Beta distribution about as wide as
average precision over queries was in the paper (0.33; Chechik et al., JMLR 11, 2010, section 5.2.3), and
three raters mark ten places each. The truth is the mean of that distribution.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from scipy.stats import beta, bootstrap

from daemon.ratings.report import DRAWS, LEVEL

STUDIES, RATERS, PLACES = 2_000, 3, 10
QUERIES = (10, 25, 50, 100)
DIFFICULTY = beta(0.75, 0.9)
"""Mean 0.45, standard deviation 0.31."""


def covered(queries: int, method: str) -> float:
    """The share of studies whose interval by this method of the bootstrap holds the mean."""
    draw, hits = np.random.default_rng(queries), 0
    for _ in range(STUDIES):
        share = DIFFICULTY.rvs(queries, random_state=draw)
        marks = draw.random((queries, RATERS, PLACES)) < share[:, None, None]
        values = marks.mean(axis=(1, 2))
        found = bootstrap(
            (values,), np.mean, n_resamples=DRAWS, confidence_level=LEVEL, method=method, random_state=draw
        ).confidence_interval
        hits += found.low <= DIFFICULTY.mean() <= found.high
    return hits / STUDIES


def main() -> None:
    """The table, in Markdown."""
    warnings.simplefilter("ignore")  # of intervals that are not defined, which then hold nothing
    sys.stdout.write("| queries | percentiles | BCa |\n|---|---|---|\n")
    for queries in QUERIES:
        cells = [f"{covered(queries, method):.1%}" for method in ("percentile", "BCa")]
        sys.stdout.write(f"| {queries} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
