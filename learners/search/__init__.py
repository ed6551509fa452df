"""Exact search of the best items for folded queries, and their order by other scores; pure: arrays in,
arrays out."""

from learners.search.items import DenseItems, SearchItems, SparseItems, as_items
from learners.search.topk import (
    SHORTLIST,
    TopK,
    best_of,
    exact_scores,
    kept_scores,
    merge_topk,
    score_rows,
    topk,
    topk_dense,
    topk_sparse,
)

__all__ = [
    "SHORTLIST",
    "DenseItems",
    "SearchItems",
    "SparseItems",
    "TopK",
    "as_items",
    "best_of",
    "exact_scores",
    "kept_scores",
    "merge_topk",
    "score_rows",
    "topk",
    "topk_dense",
    "topk_sparse",
]
