"""Learners of similarity from triplets, as a plain numeric library."""

from learners.averaged import Averaged, average_states
from learners.block import Block, DenseBlock, SparseBlock, TripletBatch, as_block, concatenate
from learners.dissim import Dissim, DissimConfig
from learners.errors import BlockError, ConfigError, LearnerError, MapError, StateError
from learners.forms.diagonal import DiagonalForm
from learners.forms.serving import ServingForm
from learners.kernels import CPU_LEVEL
from learners.lego import Lego, LegoConfig
from learners.maps import FittedSpaceMap, SpaceMap, ViewConfig
from learners.oasis import Oasis, OasisConfig
from learners.outcome import DEGENERATE, PASSIVE, REJECTED, UPDATED, Outcome, Reason, StepInfo
from learners.protocol import Learner
from learners.psd import factor, lanczos_negative_pairs, project_psd
from learners.soml import SomlDa, SomlDaConfig, SomlTg, SomlTgConfig
from learners.spectrum import symmetry_index
from learners.steps import StepBatch, Steps, TripletSteps, taken_steps, taken_triplets

__all__ = [
    "CPU_LEVEL",
    "DEGENERATE",
    "PASSIVE",
    "REJECTED",
    "UPDATED",
    "Averaged",
    "Block",
    "BlockError",
    "ConfigError",
    "DenseBlock",
    "DiagonalForm",
    "Dissim",
    "DissimConfig",
    "FittedSpaceMap",
    "Learner",
    "LearnerError",
    "Lego",
    "LegoConfig",
    "MapError",
    "Oasis",
    "OasisConfig",
    "Outcome",
    "Reason",
    "ServingForm",
    "SomlDa",
    "SomlDaConfig",
    "SomlTg",
    "SomlTgConfig",
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
    "average_states",
    "concatenate",
    "factor",
    "lanczos_negative_pairs",
    "project_psd",
    "symmetry_index",
    "taken_steps",
    "taken_triplets",
]
