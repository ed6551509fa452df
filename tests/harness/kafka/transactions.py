"""Transactions that have ended for those who read: the broker says so to their producer before it writes the
markers by which readers know it."""

from __future__ import annotations

from contextlib import closing

from streams.open import open_source
from streams.source import Address
from tests.harness.waiting import until


def until_ended(address: Address) -> None:
    """Wait until no transaction holds back a record of a topic."""
    with closing(open_source(address)) as source:
        until(lambda: not source.held_back(), "the ends of the transactions")
