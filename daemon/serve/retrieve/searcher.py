"""From queries to hits: a model's view, the catalog's snapshot and the norms made for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from daemon.replica.view import View
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import Answers, Query, Refused
from learners.block import Block

Lookup: TypeAlias = Callable[[Sequence[Query], IndexSnapshot], Sequence[Block | Refused]]
"""The mapped vector (a block of one row) of each query, or why it has none."""


class Replicas(Protocol):
    """What the searcher needs of a replica."""

    def read(self) -> AbstractContextManager[View]:
        """A consistent model for the length of the block. Raises NotServing with the reason."""
        ...


class Searcher:
    """Answers queries under the aliases of `replicas`; `search` is called from one thread at a time.

    snapshot: gives the newest state of the catalog. lookup: finds the vectors of queries.
    `prepare` and `warm` are the hooks of every replica (`Hooks`): `prepare` computes the norms of all items off the
    path, `warm` searches once. A view is searched in the newest snapshot when its norms cover it, else in the
    one they were made for; so new objects are found once `prepare` has run again.
    """

    def __init__(
        self, replicas: Mapping[str, Replicas], snapshot: Callable[[], IndexSnapshot], lookup: Lookup
    ) -> None:
        raise NotImplementedError

    def prepare(self, view: View) -> object:
        """What `view.prepared` is to be: the norms of all items. Called off the path."""
        raise NotImplementedError

    def warm(self, view: View) -> None:
        """One dry search, so that the first answer pays for nothing. Raises when the model cannot answer."""
        raise NotImplementedError

    def search(self, alias: str, queries: Sequence[Query]) -> Answers:
        """All answers from one view of the alias' model. Raises Refused when nothing can be answered."""
        raise NotImplementedError

    def search_view(self, view: View, queries: Sequence[Query]) -> Answers:
        """The same for a view at hand, such as that of any version; prepares it on the spot if need be."""
        raise NotImplementedError
