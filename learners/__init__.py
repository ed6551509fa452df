"""Learners of similarity from triplets, as a plain numeric library."""

from learners.batch import TripletBatch
from learners.block import Block, DenseBlock, SparseBlock, as_block, concatenate
from learners.errors import BlockError, ConfigError, LearnerError, MapError, StateError
from learners.kernels import CPU_LEVEL
from learners.maps import FittedSpaceMap, SpaceMap, ViewConfig
from learners.oasis import Oasis, OasisConfig
from learners.outcome import DEGENERATE, PASSIVE, REJECTED, UPDATED, Outcome, Reason, StepInfo
from learners.protocol import Learner
from learners.psd import factor, lanczos_negative_pairs, project_psd
from learners.serving import ServingForm
from learners.steps import StepBatch, Steps, TripletSteps, taken_steps, taken_triplets

__all__ = [
    "CPU_LEVEL",
    "DEGENERATE",
    "PASSIVE",
    "REJECTED",
    "UPDATED",
    "Block",
    "BlockError",
    "ConfigError",
    "DenseBlock",
    "FittedSpaceMap",
    "Learner",
    "LearnerError",
    "MapError",
    "Oasis",
    "OasisConfig",
    "Outcome",
    "Reason",
    "ServingForm",
    "SpaceMap",
    "SparseBlock",
    "StateError",
    "StepBatch",
    "StepInfo",
    "Steps",
    "TripletBatch",
    "TripletSteps",
    "ViewConfig",
    "as_block",
    "concatenate",
    "factor",
    "lanczos_negative_pairs",
    "project_psd",
    "taken_steps",
    "taken_triplets",
]
