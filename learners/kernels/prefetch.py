"""Software prefetch for numba kernels, through LLVM's `llvm.prefetch`."""

from __future__ import annotations

from typing import Any

from learners.kernels import cpu as _cpu  # noqa: F401  (fixes the CPU level before numba is imported)

from llvmlite import ir  # isort: skip
from numba.core import types  # isort: skip
from numba.extending import intrinsic  # isort: skip

FOR_WRITE = 1
LOCALITY = 3
DATA_CACHE = 1


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of `array[index]`, to be written soon; a hint, never a fault.

    array: one-dimensional; index: any integer, not bounds-checked (a wrong address costs time, nothing else).
    """
    if not (isinstance(array, types.Array) and array.ndim == 1 and isinstance(index, types.Integer)):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.gep(data, [arguments[1]], inbounds=False)
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        constants = [ir.Constant(word, value) for value in (FOR_WRITE, LOCALITY, DATA_CACHE)]
        builder.call(hint, [builder.bitcast(address, byte), *constants])
        return context.get_dummy_value()

    return types.void(array, index), generate
