"""Learners of similarity from triplets, as a plain numeric library.

Every learner, form, map, setting and search can be imported from here; each is loaded when it is first
asked for, so that `import learners` is quick. See docs/learners.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learners.averaged import Averaged as Averaged
    from learners.averaged import AveragedConfig as AveragedConfig
    from learners.averaged import average_states as average_states
    from learners.base import BaseLearner as BaseLearner
    from learners.base import KnownAnswer as KnownAnswer
    from learners.base import Learner as Learner
    from learners.block import MAX_KEY_BYTES as MAX_KEY_BYTES
    from learners.block import Block as Block
    from learners.block import DenseBlock as DenseBlock
    from learners.block import SparseBlock as SparseBlock
    from learners.block import TripletBatch as TripletBatch
    from learners.block import as_block as as_block
    from learners.block import as_triplets as as_triplets
    from learners.block import concatenate as concatenate
    from learners.caps import CappedInfo as CappedInfo
    from learners.caps import CapsConfig as CapsConfig
    from learners.caps import StepWindow as StepWindow
    from learners.caps import learn_capped as learn_capped
    from learners.distance import Dissim as Dissim
    from learners.distance import DissimConfig as DissimConfig
    from learners.distance import Lego as Lego
    from learners.distance import LegoConfig as LegoConfig
    from learners.errors import BlockError as BlockError
    from learners.errors import CompileNotice as CompileNotice
    from learners.errors import ConfigError as ConfigError
    from learners.errors import LearnerError as LearnerError
    from learners.errors import MapError as MapError
    from learners.errors import PrecisionNotice as PrecisionNotice
    from learners.errors import StateError as StateError
    from learners.forms.bilinear import BilinearForm as BilinearForm
    from learners.forms.blocks import BlocksForm as BlocksForm
    from learners.forms.carried import CarriedForm as CarriedForm
    from learners.forms.embedding import Embedding as Embedding
    from learners.forms.quadratic import DiagonalForm as DiagonalForm
    from learners.forms.quadratic import FoldingForm as FoldingForm
    from learners.forms.quadratic import IdentityForm as IdentityForm
    from learners.forms.quadratic import ServedForm as ServedForm
    from learners.forms.serving import BackoffForm as BackoffForm
    from learners.forms.serving import ServingForm as ServingForm
    from learners.hedge import HedgeConfig as HedgeConfig
    from learners.kernels.cpu import CPU_LEVEL as CPU_LEVEL
    from learners.kernels.kinds import KERNELS as KERNELS
    from learners.kernels.kinds import MAP_KERNELS as MAP_KERNELS
    from learners.keyed import Keyed as Keyed
    from learners.keyed import KeyedConfig as KeyedConfig
    from learners.lego_pairs import LegoPairs as LegoPairs
    from learners.lego_pairs import LegoPairsConfig as LegoPairsConfig
    from learners.lego_pairs import pair_targets as pair_targets
    from learners.loreta import Loreta as Loreta
    from learners.loreta import LoretaConfig as LoretaConfig
    from learners.maps.approximations import NystroemMap as NystroemMap
    from learners.maps.approximations import RffMap as RffMap
    from learners.maps.base import CosineMap as CosineMap
    from learners.maps.base import IdentityMap as IdentityMap
    from learners.maps.base import OwnRanking as OwnRanking
    from learners.maps.base import UnitMap as UnitMap
    from learners.maps.base import ViewConfig as ViewConfig
    from learners.maps.base import ViewMap as ViewMap
    from learners.maps.histograms import HikeMap as HikeMap
    from learners.maps.histograms import SharesMap as SharesMap
    from learners.maps.histograms import SqrtMap as SqrtMap
    from learners.maps.queries import FittedPairs as FittedPairs
    from learners.maps.queries import PairFit as PairFit
    from learners.maps.queries import QueryMap as QueryMap
    from learners.maps.scaling import PcaMap as PcaMap
    from learners.maps.scaling import PreconditionMap as PreconditionMap
    from learners.maps.scaling import StandardiseMap as StandardiseMap
    from learners.maps.scaling import TfidfMap as TfidfMap
    from learners.maps.scaling import WhitenMap as WhitenMap
    from learners.maps.separable import AddKpcaMap as AddKpcaMap
    from learners.maps.separable import PcaLapMap as PcaLapMap
    from learners.maps.separable import RpLapMap as RpLapMap
    from learners.maps.space import KINDS as KINDS
    from learners.maps.space import ChainMap as ChainMap
    from learners.maps.space import FittedSpaceMap as FittedSpaceMap
    from learners.maps.space import KernelsMap as KernelsMap
    from learners.maps.space import SpaceMap as SpaceMap
    from learners.maps.space import fit_map as fit_map
    from learners.maps.space import load_map as load_map
    from learners.maps.transformer import MapTransformer as MapTransformer
    from learners.measures import RankingMeasures as RankingMeasures
    from learners.measures import average_precision as average_precision
    from learners.measures import average_precision_at as average_precision_at
    from learners.measures import judge_by_labels as judge_by_labels
    from learners.measures import macro_over as macro_over
    from learners.measures import mean_over as mean_over
    from learners.measures import precision_at_k as precision_at_k
    from learners.measures import ranks_of as ranks_of
    from learners.multikernel.config import KernelConfig as KernelConfig
    from learners.multikernel.config import OmksConfig as OmksConfig
    from learners.multikernel.config import ViewKernels as ViewKernels
    from learners.multikernel.config import one_kernel as one_kernel
    from learners.multikernel.form import AsLearned as AsLearned
    from learners.multikernel.form import SupportsForm as SupportsForm
    from learners.multikernel.omks import Omks as Omks
    from learners.oasis import Oasis as Oasis
    from learners.oasis import OasisConfig as OasisConfig
    from learners.oasis_diagonal import OasisDiagonal as OasisDiagonal
    from learners.oasis_diagonal import OasisDiagonalConfig as OasisDiagonalConfig
    from learners.oasis_softmax import OasisSoftmax as OasisSoftmax
    from learners.oasis_softmax import OasisSoftmaxConfig as OasisSoftmaxConfig
    from learners.oasis_sparse import OasisSparse as OasisSparse
    from learners.oasis_sparse import OasisSparseConfig as OasisSparseConfig
    from learners.omks_maps import OmksMaps as OmksMaps
    from learners.omks_maps import OmksMapsConfig as OmksMapsConfig
    from learners.outcome import DEGENERATE as DEGENERATE
    from learners.outcome import PASSIVE as PASSIVE
    from learners.outcome import REJECTED as REJECTED
    from learners.outcome import UPDATED as UPDATED
    from learners.outcome import Outcome as Outcome
    from learners.outcome import Reason as Reason
    from learners.outcome import StepInfo as StepInfo
    from learners.psd import factor as factor
    from learners.psd import lanczos_negative_pairs as lanczos_negative_pairs
    from learners.psd import project_psd as project_psd
    from learners.psd import psd_part as psd_part
    from learners.psd import symmetry_index as symmetry_index
    from learners.search import DenseItems as DenseItems
    from learners.search import SearchIndex as SearchIndex
    from learners.search import SparseItems as SparseItems
    from learners.search import as_items as as_items
    from learners.search import merge_topk as merge_topk
    from learners.search import score_rows as score_rows
    from learners.search import topk as topk
    from learners.softmax import Softmax as Softmax
    from learners.softmax import SoftmaxConfig as SoftmaxConfig
    from learners.soml import DiagonalLearner as DiagonalLearner
    from learners.soml import SomlDa as SomlDa
    from learners.soml import SomlDaConfig as SomlDaConfig
    from learners.soml import SomlTg as SomlTg
    from learners.soml import SomlTgConfig as SomlTgConfig
    from learners.spectrum import change as change
    from learners.spectrum import spectrum as spectrum
    from learners.steps import StepBatch as StepBatch
    from learners.steps import Steps as Steps
    from learners.steps import TripletSteps as TripletSteps
    from learners.steps import taken_steps as taken_steps
    from learners.steps import taken_triplets as taken_triplets
    from learners.tether import TetherConfig as TetherConfig
    from learners.tether import Tethered as Tethered

_MODULES = {
    "averaged": "Averaged AveragedConfig average_states",
    "base": "BaseLearner KnownAnswer Learner",
    "block": "Block DenseBlock MAX_KEY_BYTES SparseBlock TripletBatch as_block as_triplets concatenate",
    "caps": "CappedInfo CapsConfig StepWindow learn_capped",
    "distance": "Dissim DissimConfig Lego LegoConfig",
    "errors": "BlockError CompileNotice ConfigError LearnerError MapError PrecisionNotice StateError",
    "forms.bilinear": "BilinearForm",
    "forms.blocks": "BlocksForm",
    "forms.carried": "CarriedForm",
    "forms.embedding": "Embedding",
    "forms.quadratic": "DiagonalForm FoldingForm IdentityForm ServedForm",
    "forms.serving": "BackoffForm ServingForm",
    "hedge": "HedgeConfig",
    "kernels.cpu": "CPU_LEVEL",
    "kernels.kinds": "KERNELS MAP_KERNELS",
    "keyed": "Keyed KeyedConfig",
    "lego_pairs": "LegoPairs LegoPairsConfig pair_targets",
    "loreta": "Loreta LoretaConfig",
    "maps.approximations": "NystroemMap RffMap",
    "maps.base": "CosineMap IdentityMap OwnRanking UnitMap ViewConfig ViewMap",
    "maps.histograms": "HikeMap SharesMap SqrtMap",
    "maps.queries": "FittedPairs PairFit QueryMap",
    "maps.scaling": "PcaMap PreconditionMap StandardiseMap TfidfMap WhitenMap",
    "maps.separable": "AddKpcaMap PcaLapMap RpLapMap",
    "maps.space": "ChainMap FittedSpaceMap KINDS KernelsMap SpaceMap fit_map load_map",
    "maps.transformer": "MapTransformer",
    "measures": "RankingMeasures average_precision average_precision_at judge_by_labels macro_over mean_over "
    "precision_at_k ranks_of",
    "multikernel.config": "KernelConfig OmksConfig ViewKernels one_kernel",
    "multikernel.form": "AsLearned SupportsForm",
    "multikernel.omks": "Omks",
    "oasis": "Oasis OasisConfig",
    "oasis_diagonal": "OasisDiagonal OasisDiagonalConfig",
    "oasis_softmax": "OasisSoftmax OasisSoftmaxConfig",
    "oasis_sparse": "OasisSparse OasisSparseConfig",
    "omks_maps": "OmksMaps OmksMapsConfig",
    "outcome": "DEGENERATE Outcome PASSIVE REJECTED Reason StepInfo UPDATED",
    "psd": "factor lanczos_negative_pairs project_psd psd_part symmetry_index",
    "search": "DenseItems SearchIndex SparseItems as_items merge_topk score_rows topk",
    "softmax": "Softmax SoftmaxConfig",
    "soml": "DiagonalLearner SomlDa SomlDaConfig SomlTg SomlTgConfig",
    "spectrum": "change spectrum",
    "steps": "StepBatch Steps TripletSteps taken_steps taken_triplets",
    "tether": "TetherConfig Tethered",
}
"""Where each public name is defined."""

_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

if not TYPE_CHECKING:  # type checkers go by the imports above, also of `from learners import *`
    __all__ = sorted(_PLACES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]
