"""Kernel values of a tile of objects side by side, from their squared distances.

Written in LLVM's own vectors: products and sums are fused, nothing goes through memory between, and no loop
is left to the compiler, which takes lanes one by one where it cannot tell arrays apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from learners.kernels import cpu as _cpu  # noqa: F401  (fixes the CPU level before numba is imported)
from learners.kernels.tiles import INT, LANES, VECTOR, WIDTH, WORD, load_vector, repeated

from llvmlite import ir  # isort: skip
from numba.core import cgutils, types  # isort: skip
from numba.extending import intrinsic  # isort: skip

_INTS = ir.VectorType(INT, WIDTH)
_FUSED = ("contract",)
_LEAST = -87.0
"""Below it the exponential is 0: 2^n of a float32 ends at n = -126."""

_TO_WHOLE = 1.5 * 2.0**23
"""Added to a number below 2^22 it leaves the nearest whole one in the lowest bits."""

_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_SERIES = tuple(1 / math.factorial(n) for n in (7, 6, 5, 4, 3, 2, 1, 0))


def _all(number: float) -> Any:
    return ir.Constant(VECTOR, [number] * WIDTH)


def _whole(number: int) -> Any:
    return ir.Constant(_INTS, [number] * WIDTH)


def _fused(builder: Any, left: Any, right: Any, more: Any) -> Any:
    return builder.fadd(builder.fmul(left, right, flags=_FUSED), more, flags=_FUSED)


def _exponential(builder: Any, x: Any) -> Any:
    """exp(x), x <= 0, to about 1e-7 of itself: x = n ln 2 + r, |r| <= ln(2)/2, exp(r) by its series to r^7,
    whose next term is below 6e-9, times 2^n."""
    inside = builder.select(builder.fcmp_ordered(">", x, _all(_LEAST)), x, _all(_LEAST))
    whole = _fused(builder, inside, _all(math.log2(math.e)), _all(_TO_WHOLE))
    n = builder.fsub(whole, _all(_TO_WHOLE))
    r = _fused(builder, n, _all(-_LN2_HIGH), inside)
    r = _fused(builder, n, _all(-_LN2_LOW), r)
    series = _all(_SERIES[0])
    for term in _SERIES[1:]:
        series = _fused(builder, r, series, _all(term))
    exponent = builder.shl(builder.add(builder.bitcast(whole, _INTS), _whole(127)), _whole(23))
    value = builder.fmul(series, builder.bitcast(exponent, VECTOR))
    return builder.select(builder.fcmp_ordered(">=", x, _all(_LEAST)), value, _all(0.0))


def _each(builder: Any, source: Any, target: Any, value: Callable[[Any, int], Any]) -> None:
    """target = value(source, place of the first lane), vector by vector."""
    for part in range(0, LANES, WIDTH):
        result = value(load_vector(builder, source.data, WORD(part)), part)
        address = builder.bitcast(builder.gep(target.data, [WORD(part)]), VECTOR.as_pointer())
        builder.store(result, address).align = 4


def _arrays(context: Any, builder: Any, signature: Any, arguments: Any, places: tuple[int, ...]) -> list[Any]:
    return [context.make_array(signature.args[n])(context, builder, arguments[n]) for n in places]


@intrinsic
def rbf_of_squares(typing_context: Any, squares: Any, rate: Any, out: Any) -> Any:
    """out[lane] = exp(-rate sqrt(squares[lane])), 0 where that is below e^-87 or no number.

    squares, out: float32 [LANES], squares >= 0; rate: float32, > 0.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = _arrays(context, builder, signature, arguments, (0, 2))
        factor = repeated(builder, builder.fneg(arguments[1]))
        kind = ir.FunctionType(VECTOR, [VECTOR])
        root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{WIDTH}f32")

        def value(square: Any, _part: int) -> Any:
            return _exponential(builder, builder.fmul(builder.call(root, [square]), factor))

        _each(builder, source, target, value)
        return context.get_dummy_value()

    return types.void(squares, types.float32, out), generate


@intrinsic
def fourth_power(typing_context: Any, values: Any, out: Any) -> Any:
    """out[lane] = values[lane]^4; float32 [LANES]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = _arrays(context, builder, signature, arguments, (0, 1))

        def value(number: Any, _part: int) -> Any:
            square = builder.fmul(number, number)
            return builder.fmul(square, square)

        _each(builder, source, target, value)
        return context.get_dummy_value()

    return types.void(values, out), generate


@intrinsic
def cosine_of_squares(typing_context: Any, squares: Any, norm: Any, norms: Any, out: Any) -> Any:
    """out[lane] = 0.5 cos + 0.5 from the squared distance and both lengths; 0.5 where a length is 0.

    1 - (d^2 - (|x| - |y|)^2) / (4 |x| |y|): exact for equal objects, where a rounded cosine is not. squares,
    norms, out: float32 [LANES]; norm: float32.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, others, target = _arrays(context, builder, signature, arguments, (0, 2, 3))
        one = repeated(builder, arguments[1])

        def value(square: Any, part: int) -> Any:
            other = load_vector(builder, others.data, WORD(part))
            scale = builder.fmul(builder.fmul(_all(4.0), one), other)
            gap = builder.fsub(one, other)
            quotient = builder.fdiv(builder.fsub(square, builder.fmul(gap, gap)), scale)
            result = builder.fsub(_all(1.0), quotient)
            result = builder.select(builder.fcmp_ordered(">", result, _all(0.0)), result, _all(0.0))
            result = builder.select(builder.fcmp_ordered("<", result, _all(1.0)), result, _all(1.0))
            return builder.select(builder.fcmp_ordered(">", scale, _all(0.0)), result, _all(0.5))

        _each(builder, source, target, value)
        return context.get_dummy_value()

    return types.void(squares, types.float32, norms, out), generate
