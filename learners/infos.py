"""Infos of consecutive parts of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from learners.outcome import StepInfo


def joined(infos: Sequence[StepInfo]) -> StepInfo:
    """The infos of consecutive parts as one."""
    if len(infos) == 1:
        return infos[0]
    joined, at = StepInfo.empty(sum(map(len, infos))), 0
    joined.first, joined.evicted = infos[0].first if infos else 0, sum(info.evicted for info in infos)
    for info in infos:
        rows = slice(at, at + len(info))
        joined.outcome[rows], joined.loss[rows] = info.outcome, info.loss
        joined.tau[rows], joined.reason[rows] = info.tau, info.reason
        joined.projected += [at + place for place in info.projected]
        at += len(info)
    return joined
