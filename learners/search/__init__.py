"""Exact search of the best items for folded queries, pure: arrays in, arrays out."""

from learners.search.items import DenseItems, Items, SparseItems, as_items
from learners.search.merge import merge_topk
from learners.search.rows import score_rows
from learners.search.topk import TopK, topk, topk_dense, topk_sparse

__all__ = [
    "DenseItems",
    "Items",
    "SparseItems",
    "TopK",
    "as_items",
    "merge_topk",
    "score_rows",
    "topk",
    "topk_dense",
    "topk_sparse",
]
