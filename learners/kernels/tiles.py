"""Sums over the dimensions of a view for a tile of objects side by side: what kernel values are made of.

A tile is LANES objects, stored dimension by dimension: `rows[tile, dimension, lane]`. Each lane is one plain
sum in the order of the dimensions, so a value depends neither on the slot an object lies in nor on its
neighbours. Written in LLVM's own vectors, because sums kept in an array go through memory.

Kernel values of a tile of objects side by side, from their squared distances.

Written in LLVM's own vectors: products and sums are fused, nothing goes through memory between, and no loop
is left to the compiler, which takes lanes one by one where it cannot tell arrays apart.

The sum over kept triplets that a margin is made of, for several kernels side by side.

Written in LLVM's own vectors, because sums kept in an array go through memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# ruff: noqa: PLR0917  (intrinsics take plain arrays)


LANES = 32
"""Objects of a tile: four vectors of 8, enough sums in turn that few additions wait for the one before."""

WIDTH = 8
WORD, INT, _FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
VECTOR = ir.VectorType(_FLOAT, WIDTH)
_FUSED = ("contract",)


def _squares(builder: Any, total: Any, x: Any, y: Any) -> Any:
    difference = builder.fsub(x, y)
    return builder.fadd(total, builder.fmul(difference, difference, flags=_FUSED), flags=_FUSED)


def _products(builder: Any, total: Any, x: Any, y: Any) -> Any:
    return builder.fadd(total, builder.fmul(x, y, flags=_FUSED), flags=_FUSED)


def _least(builder: Any, total: Any, x: Any, y: Any) -> Any:
    return builder.fadd(total, builder.select(builder.fcmp_ordered("<", x, y), x, y))


def _sums(term: Callable[..., Any], inputs: int) -> Any:
    """An intrinsic (rows, tile, first, last, given, out): out[i, lane] = sum over dimensions first..last-1 of
    term(rows[tile, dimension, lane], given[i, dimension]) for i < inputs.

    rows: float32 [tiles, dim, LANES], given: float32 [inputs, dim], out: float32 [inputs, LANES],
    C-contiguous; nothing is checked here.
    """

    def sums(typing_context: Any, rows: Any, tile: Any, first: Any, last: Any, given: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = signature.args
            objects, inputs_, results = (
                context.make_array(kinds[i])(context, builder, arguments[i]) for i in (0, 4, 5)
            )
            dim = builder.extract_value(objects.shape, 1)
            base = builder.mul(builder.mul(arguments[1], dim), WORD(LANES))
            zero = ir.Constant(VECTOR, [0.0] * WIDTH)
            parts = range(LANES // WIDTH)
            totals = [[cgutils.alloca_once_value(builder, zero) for _ in parts] for _ in range(inputs)]
            for row in totals:
                for total in row:
                    builder.store(zero, total)
            with cgutils.for_range_slice(builder, arguments[2], arguments[3], WORD(1), intp=WORD) as (d, _):
                here = builder.add(base, builder.mul(d, WORD(LANES)))
                lanes = [
                    load_vector(builder, objects.data, builder.add(here, WORD(part * WIDTH)))
                    for part in parts
                ]
                for i, row in enumerate(totals):
                    place = builder.add(builder.mul(dim, WORD(i)), d)
                    number = repeated(builder, builder.load(builder.gep(inputs_.data, [place])))
                    for lane, total in zip(lanes, row, strict=True):
                        builder.store(term(builder, builder.load(total), lane, number), total)
            for i, row in enumerate(totals):
                for part, total in enumerate(row):
                    address = builder.gep(results.data, [WORD(i * LANES + part * WIDTH)])
                    builder.store(
                        builder.load(total), builder.bitcast(address, VECTOR.as_pointer())
                    ).align = 4
            return context.get_dummy_value()

        return types.void(rows, types.int64, types.int64, types.int64, given, out), generate

    return intrinsic(sums)


def load_vector(builder: Any, base: Any, index: Any) -> Any:
    """WIDTH float32 numbers from `base[index]` on, which need not be aligned."""
    loaded = builder.load(builder.bitcast(builder.gep(base, [index]), VECTOR.as_pointer()))
    loaded.align = 4
    return loaded


def repeated(builder: Any, number: Any) -> Any:
    """A vector of WIDTH times the same number."""
    nothing = ir.Constant(VECTOR, ir.Undefined)
    one = builder.insert_element(nothing, number, INT(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(INT, WIDTH), [0] * WIDTH))


squares_of_one, squares_of_two = (_sums(_squares, inputs) for inputs in (1, 2))
products_of_one, products_of_two = (_sums(_products, inputs) for inputs in (1, 2))
least_of_one, least_of_two = (_sums(_least, inputs) for inputs in (1, 2))
"""For one object or two: their sums, with the numbers they are made of, just fit into 16 registers."""


@intrinsic
def turn_lanes(typing_context: Any, values: Any, i: Any, less: Any, first: Any, out: Any) -> Any:
    """out[first + lane, k] = values[i, k, lane], less values[less, k, lane] where less >= 0; a square of 8 by
    8 at a time in registers.

    values: float32 [inputs, at least width, LANES], out: float32 [slots, width], width a multiple of 8.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        source, target = (context.make_array(kinds[n])(context, builder, arguments[n]) for n in (0, 4))
        width = builder.extract_value(target.shape, 1)
        plane = builder.mul(builder.extract_value(source.shape, 1), WORD(LANES))
        base, other = (builder.mul(arguments[n], plane) for n in (1, 2))
        minus = builder.icmp_signed(">=", arguments[2], WORD(0))
        safe = builder.select(minus, other, base)
        with cgutils.for_range_slice(builder, WORD(0), width, WORD(WIDTH), intp=WORD) as (k, _):
            for part in range(0, LANES, WIDTH):
                rows = []
                for row in range(WIDTH):
                    place = builder.add(builder.mul(builder.add(k, WORD(row)), WORD(LANES)), WORD(part))
                    own = load_vector(builder, source.data, builder.add(base, place))
                    gap = builder.fsub(own, load_vector(builder, source.data, builder.add(safe, place)))
                    rows.append(builder.select(minus, gap, own))
                for lane, turned in enumerate(transposed(builder, rows)):
                    slot = builder.add(arguments[3], WORD(part + lane))
                    address = builder.gep(target.data, [builder.add(builder.mul(slot, width), k)])
                    builder.store(turned, builder.bitcast(address, VECTOR.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, types.int64, out), generate


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """The columns of 8 vectors of 8: in three rounds, each merging neighbours at 1, 2 and 4 apart."""
    for apart in (1, 2, 4):
        low = [lane if not lane & apart else lane + WIDTH - apart for lane in range(WIDTH)]
        high = [lane + apart if not lane & apart else lane + WIDTH for lane in range(WIDTH)]
        merged = list(rows)
        for n in range(WIDTH):
            if not n & apart:
                pair = rows[n], rows[n + apart]
                merged[n], merged[n + apart] = (
                    builder.shuffle_vector(*pair, ir.Constant(ir.VectorType(INT, WIDTH), mask))
                    for mask in (low, high)
                )
        rows = merged
    return rows


_INTS = ir.VectorType(INT, WIDTH)

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


# ruff: noqa: PLR0917  (intrinsics take plain arrays)


SIDE_BY_SIDE = 8
"""Kernels in one vector; taus and values of an object fill rows of a multiple of it."""

AT_ONCE = 5
"""Vectors that `sum_many_triplets` sums in turn, so that no addition waits for the one before: the 36 kernels
of the paper."""

_WORD, _INT, _SUM_FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
_VECTOR = ir.VectorType(_SUM_FLOAT, SIDE_BY_SIDE)


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
