"""Mutations of the product that its tests must notice: see `__main__`."""

from tests.mutations.mutation import Mutation

__all__ = ["all_mutations"]


def all_mutations() -> tuple[Mutation, ...]:
    """All of them; no two of one name."""
    from tests.mutations import of_checkpoints, of_daemon, of_learners, of_streams

    lists = (of_learners, of_streams, of_checkpoints, of_daemon)
    found = tuple(one for listed in lists for one in listed.MUTATIONS)
    assert len({one.name for one in found}) == len(found)
    return found
