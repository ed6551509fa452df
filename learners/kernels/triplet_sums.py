"""The sum over kept triplets that a margin is made of, for several kernels side by side.

Written in LLVM's own vectors, because sums kept in an array go through memory.
"""

# ruff: noqa: PLR0917  (intrinsics take plain arrays)

from __future__ import annotations

from typing import Any

from learners.kernels import cpu as _cpu  # noqa: F401  (fixes the CPU level before numba is imported)

from llvmlite import ir  # isort: skip
from numba.core import cgutils, types  # isort: skip
from numba.extending import intrinsic  # isort: skip

SIDE_BY_SIDE = 8
"""Kernels in one vector; taus and values of an object fill rows of a multiple of it."""

AT_ONCE = 5
"""Vectors that `sum_many_triplets` sums in turn, so that no addition waits for the one before: the 36 kernels
of the paper."""

_WORD, _INT, _FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, SIDE_BY_SIDE)
_FUSED = ("contract",)


def _sum(vectors: int) -> Any:
    """An intrinsic (triplets, first, last, part, tau, of_query, of_items, out): out[k] = sum over first <= l
    < last of tau[l, k] of_query[q_l, k] (of_items[c_l, k] - of_items[s_l, k]) for the `vectors` *
    SIDE_BY_SIDE kernels from `part` on, float32, in the order of l.

    triplets: int32 [T, 3], slots q_l, c_l, s_l, passed over where q_l < 0; tau: float32 [T, width]; of_query,
    of_items: float32 [slots, width]; out: float32 [width]; C-contiguous, nothing is checked here.
    """

    def sum_triplets(
        typing_context: Any, triplets: Any, first: Any, last: Any, part: Any,
        tau: Any, of_query: Any, of_items: Any, out: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds, part = signature.args, arguments[3]
            slots, taus, queries, items, sums = (
                context.make_array(kinds[i])(context, builder, arguments[i]) for i in (0, 4, 5, 6, 7)
            )
            width, zero = builder.extract_value(taus.shape, 1), ir.Constant(_VECTOR, [0.0] * SIDE_BY_SIDE)
            columns = [builder.add(part, _WORD(n * SIDE_BY_SIDE)) for n in range(vectors)]
            totals = [cgutils.alloca_once_value(builder, zero) for _ in columns]
            for total in totals:
                builder.store(zero, total)
            with cgutils.for_range_slice(builder, arguments[1], arguments[2], _WORD(1), intp=_WORD) as (l, _):
                start = builder.mul(l, _WORD(3))
                q, c, s = (
                    builder.sext(builder.load(builder.gep(slots.data, [builder.add(start, _WORD(i))])), _WORD)
                    for i in range(3)
                )
                with builder.if_then(builder.icmp_signed(">=", q, _WORD(0))):
                    rows = [builder.mul(number, width) for number in (l, q, c, s)]
                    for column, total in zip(columns, totals, strict=True):
                        places = [builder.add(row, column) for row in rows]
                        bases = (taus.data, queries.data, items.data, items.data)
                        t, k, near, far = (_load(builder, *one) for one in zip(bases, places, strict=True))
                        term = builder.fmul(builder.fmul(t, k), builder.fsub(near, far), flags=_FUSED)
                        builder.store(builder.fadd(builder.load(total), term, flags=_FUSED), total)
            for column, total in zip(columns, totals, strict=True):
                address = builder.bitcast(builder.gep(sums.data, [column]), _VECTOR.as_pointer())
                builder.store(builder.load(total), address).align = 4
            return context.get_dummy_value()

        numbers = (types.int64,) * 3
        return types.void(triplets, *numbers, tau, of_query, of_items, out), generate

    return intrinsic(sum_triplets)


def _load(builder: Any, base: Any, place: Any) -> Any:
    loaded = builder.load(builder.bitcast(builder.gep(base, [place]), _VECTOR.as_pointer()))
    loaded.align = 4
    return loaded


sum_triplets, sum_many_triplets = _sum(1), _sum(AT_ONCE)
