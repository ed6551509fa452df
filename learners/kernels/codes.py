"""Exact integer products of 8-bit with 16-bit codes, for the quick scan of a search over dense items.

Written in LLVM's own vectors: numba widens every product of integers to 64 bits, which no processor
multiplies side by side, while 16-bit products summed in 32 bits are one instruction for sixteen of them.
"""

from __future__ import annotations

from typing import Any

from learners.kernels import cpu as _cpu  # noqa: F401  (fixes the CPU level before numba is imported)

from llvmlite import ir  # isort: skip
from numba.core import cgutils, types  # isort: skip
from numba.extending import intrinsic  # isort: skip

STRIDE = 32
"""Codes that are multiplied at once; rows are padded to a multiple of it, with codes 0."""

_WORD, _INT, _SHORT, _BYTE = (ir.IntType(bits) for bits in (64, 32, 16, 8))
_WIDE = ir.VectorType(_INT, STRIDE)


@intrinsic
def dot_codes(typing_context: Any, codes: Any, row: Any, queries: Any, n: Any) -> Any:
    """The product of codes[row] and queries[n]: an int32, exact where it fits.

    codes: int8 [rows, p], queries: int16 [m, p], C-contiguous, p a multiple of STRIDE; neither row is
    checked.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        left, right = (context.make_array(kinds[i])(context, builder, arguments[i]) for i in (0, 2))
        width = builder.extract_value(left.shape, 1)
        places = [
            builder.gep(array.data, [builder.mul(arguments[i], width)])
            for array, i in ((left, 1), (right, 3))
        ]
        total = cgutils.alloca_once_value(builder, ir.Constant(_WIDE, [0] * STRIDE))
        with cgutils.for_range_slice(builder, _WORD(0), width, _WORD(STRIDE), intp=_WORD) as (place, _):
            product = builder.mul(
                _load(builder, places[0], place, _BYTE), _load(builder, places[1], place, _SHORT)
            )
            builder.store(builder.add(builder.load(total), product), total)
        return _sum_of_lanes(builder, builder.load(total))

    return types.int32(codes, types.int64, queries, types.int64), generate


def _load(builder: Any, base: Any, index: Any, kind: Any) -> Any:
    """STRIDE neighbouring integers of any alignment, widened to 32 bits."""
    narrow = ir.VectorType(kind, STRIDE)
    loaded = builder.load(builder.bitcast(builder.gep(base, [index]), narrow.as_pointer()))
    loaded.align = 1
    return builder.sext(loaded, _WIDE)


def _sum_of_lanes(builder: Any, vector: Any) -> Any:
    kind = ir.FunctionType(_INT, [_WIDE])
    name = f"llvm.vector.reduce.add.v{STRIDE}i32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])
