"""[learner]: the keys of every algorithm, one class and one file each."""

from daemon.config.learners.common import LearnerConfig
from daemon.config.learners.oasis import OasisKeys
from daemon.config.learners.table import LEARNERS, all_keys, keys_of, owner, owners

__all__ = ["LEARNERS", "LearnerConfig", "OasisKeys", "all_keys", "keys_of", "owner", "owners"]
