"""Whether this learner is still the one that writes: asked before what no create-only put would refuse."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from checkpoints import Epoch, VersionStore
from checkpoints.commit import check_writer
from checkpoints.errors import CheckpointError, Superseded
from daemon.exits import EX_CANTCREAT, UserError


@dataclass(frozen=True, slots=True)
class Fence:
    """A learner that was frozen for long finds out here, before it prunes or sends, that it was succeeded."""

    versions: VersionStore
    epoch: Epoch

    def check(self) -> None:
        """Raise UserError (73, never restarted) once another learner has claimed the folder.

        Raises CheckpointError when the folder cannot be read.
        """
        try:
            check_writer(self.versions.store, self.epoch)
        except Superseded as error:
            raise taken_over(error) from error

    def check_if_readable(self) -> None:
        """The same for what may go on while the folder cannot be read: it is harmless when repeated."""
        with suppress(CheckpointError):
            self.check()


def taken_over(error: CheckpointError) -> UserError:
    """How a learner that was succeeded ends."""
    return UserError(
        f"another learner has taken over these checkpoints: {error.place}: {error.problem}",
        "this one stops without writing and is not restarted; run one learner per checkpoint folder: "
        "stop the other one, then start this one again",
        EX_CANTCREAT,
    )
