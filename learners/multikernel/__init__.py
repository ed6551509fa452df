"""OKS and OMKS: similarities learned in the spaces of kernels, over a bounded support set."""

from learners.multikernel.config import KernelConfig, OmksConfig, ViewKernels, one_kernel
from learners.multikernel.omks import Omks
from learners.multikernel.support import support_bytes

__all__ = ["KernelConfig", "Omks", "OmksConfig", "ViewKernels", "one_kernel", "support_bytes"]
