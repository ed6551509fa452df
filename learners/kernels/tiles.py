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
_ZEROS = ir.Constant(VECTOR, [0.0] * WIDTH)

SUMS_AT_ONCE = 12
"""Vectors of sums that are kept in registers, of 16: the others are for what they are made of."""


def _squares(builder: Any, total: Any, x: Any, y: Any) -> Any:
    difference = builder.fsub(x, y)
    return builder.fadd(total, builder.fmul(difference, difference, flags=_FUSED), flags=_FUSED)


def _products(builder: Any, total: Any, x: Any, y: Any) -> Any:
    return builder.fadd(total, builder.fmul(x, y, flags=_FUSED), flags=_FUSED)


def _least(builder: Any, total: Any, x: Any, y: Any) -> Any:
    return builder.fadd(total, builder.select(builder.fcmp_ordered("<", x, y), x, y))


def _sums(term: Callable[..., Any], inputs: int) -> Any:
    """An intrinsic (rows, tile, first, last, given, i, out, view, kind): out[view, kind, i + n, lane] = sum
    over dimensions first..last-1 of term(rows[tile, dimension, lane], given[i + n, dimension]), n < inputs.

    rows: float32 [tiles, dim, LANES], given: float32 [., dim], out: float32 [V, kinds, ., LANES],
    C-contiguous; nothing is checked here. Places are numbers and not parts of arrays: to make a part of an
    array counts its users, which takes as long as several vectors of sums.

    Sums and the numbers they are made of fill 16 registers: as many vectors of the tile at a time as fit.
    """
    at_once = min(LANES // WIDTH, SUMS_AT_ONCE // inputs)

    def sums(
        typing_context: Any, rows: Any, tile: Any, first: Any, last: Any, given: Any, i: Any, out: Any,
        view: Any, kind: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            objects, numbers, results = _arrays(context, builder, signature, arguments, (0, 4, 6))
            tile_start = element(builder, objects, arguments[1])
            given_rows = [builder.add(arguments[5], WORD(n)) for n in range(inputs)]
            starts = [element(builder, numbers, row) for row in given_rows]
            ends = [element(builder, results, *arguments[7:9], row) for row in given_rows]
            totals = [[cgutils.alloca_once_value(builder, _ZEROS) for _ in range(at_once)] for _ in starts]
            for lane in range(0, LANES, at_once * WIDTH):
                for total in (one for row in totals for one in row):
                    builder.store(_ZEROS, total)
                base = builder.add(tile_start, WORD(lane))
                places = [WORD(part * WIDTH) for part in range(at_once)]
                with cgutils.for_range_slice(builder, *arguments[2:4], WORD(1), intp=WORD) as (d, _):
                    here = builder.add(base, builder.mul(d, WORD(LANES)))
                    lanes = [load_vector(builder, objects.data, builder.add(here, at)) for at in places]
                    for start, row in zip(starts, totals, strict=True):
                        at = builder.gep(numbers.data, [builder.add(start, d)])
                        number = repeated(builder, builder.load(at))
                        for vector, total in zip(lanes, row, strict=True):
                            builder.store(term(builder, builder.load(total), vector, number), total)
                for end, row in zip(ends, totals, strict=True):
                    for at, total in zip(places, row, strict=True):
                        found = builder.add(builder.add(end, WORD(lane)), at)
                        store_vector(builder, builder.load(total), results.data, found)
            return context.get_dummy_value()

        numbers = (types.int64,) * 3
        places = (types.int64,) * 2
        return types.void(rows, *numbers, given, types.int64, out, *places), generate

    return intrinsic(sums)


def element(builder: Any, array: Any, *places: Any) -> Any:
    """The number of the first element of `array[places]`, of a C-contiguous array."""
    index = WORD(0)
    for dimension in range(array.shape.type.count):
        size = builder.extract_value(array.shape, dimension)
        index = builder.mul(index, size)
        if dimension < len(places):
            index = builder.add(index, places[dimension])
    return index


def load_vector(builder: Any, base: Any, index: Any) -> Any:
    """WIDTH float32 numbers from `base[index]` on, which need not be aligned."""
    loaded = builder.load(builder.bitcast(builder.gep(base, [index]), VECTOR.as_pointer()))
    loaded.align = 4
    return loaded


@intrinsic
def borrowed(typing_context: Any, array: Any) -> Any:
    """The array without its owner, whose users are not counted then: two locked instructions less wherever it
    is handed on. Somebody else has to hold it: a kernel's caller holds its arguments; see `hold`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = context.make_array(signature.args[0])(context, builder, arguments[0])
        given.meminfo = ir.Constant(given.meminfo.type, None)
        return given._getvalue()

    return array(array), generate


@intrinsic
def hold(typing_context: Any, arrays: Any) -> Any:
    """Nothing; arrays that it names live until here."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_dummy_value()

    return types.void(arrays), generate


def store_vector(builder: Any, vector: Any, base: Any, index: Any) -> None:
    """Write WIDTH float32 numbers to `base[index]` on, which need not be aligned."""
    address = builder.bitcast(builder.gep(base, [index]), VECTOR.as_pointer())
    builder.store(vector, address).align = 4


def repeated(builder: Any, number: Any) -> Any:
    """A vector of WIDTH times the same number."""
    nothing = ir.Constant(VECTOR, ir.Undefined)
    one = builder.insert_element(nothing, number, INT(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(INT, WIDTH), [0] * WIDTH))


MANY = 6
"""Given objects whose sums are made together, for two vectors of the tile at a time: a vector that is loaded
then serves six sums, a number two."""

squares_of_one, squares_of_two, squares_of_many = (_sums(_squares, inputs) for inputs in (1, 2, MANY))
products_of_one, products_of_two, products_of_many = (_sums(_products, inputs) for inputs in (1, 2, MANY))
least_of_one, least_of_two, least_of_many = (_sums(_least, inputs) for inputs in (1, 2, MANY))


@intrinsic
def turn_lanes(
    typing_context: Any, values: Any, i: Any, less: Any, width: Any, out: Any, group: Any, first: Any,
    column: Any,
) -> Any:  # fmt: skip
    """out[group, first + lane, column + k] = values[i, k, lane], less values[less, k, lane] where less >= 0,
    for k < width; a square of 8 by 8 at a time in registers.

    values: float32 [inputs, at least width, LANES], out: float32 [groups, slots, .]; width: a multiple of 8.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = _arrays(context, builder, signature, arguments, (0, 4))
        base, other = (element(builder, source, arguments[n]) for n in (1, 2))
        minus = builder.icmp_signed(">=", arguments[2], WORD(0))
        safe = builder.select(minus, other, base)
        row = builder.extract_value(target.shape, 2)
        start = element(builder, target, *arguments[5:8])
        with cgutils.for_range_slice(builder, WORD(0), arguments[3], WORD(WIDTH), intp=WORD) as (k, _):
            for part in range(0, LANES, WIDTH):
                rows = []
                for n in range(WIDTH):
                    place = builder.add(builder.mul(builder.add(k, WORD(n)), WORD(LANES)), WORD(part))
                    own = load_vector(builder, source.data, builder.add(base, place))
                    gap = builder.fsub(own, load_vector(builder, source.data, builder.add(safe, place)))
                    rows.append(builder.select(minus, gap, own))
                for lane, turned in enumerate(transposed(builder, rows)):
                    at = builder.add(builder.mul(WORD(part + lane), row), k)
                    store_vector(builder, turned, target.data, builder.add(start, at))
        return context.get_dummy_value()

    numbers = (types.int64,) * 3
    return types.void(values, *numbers, out, *numbers), generate


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
_SERIES = (0.00138145402, 0.00836874511, 0.0416683908, 0.166665204, 0.499999934, 1.0, 1.0)
"""From the sixth power down: exp(r) for |r| <= ln(2)/2 to 3e-9 of itself, the least error that six powers
reach where exp(0) is 1."""


def _all(number: float) -> Any:
    return ir.Constant(VECTOR, [number] * WIDTH)


def _whole(number: int) -> Any:
    return ir.Constant(_INTS, [number] * WIDTH)


def _fused(builder: Any, left: Any, right: Any, more: Any) -> Any:
    return builder.fadd(builder.fmul(left, right, flags=_FUSED), more, flags=_FUSED)


def _exponential(builder: Any, x: Any) -> Any:
    """exp(x), x <= 0, to about 1e-7 of itself: x = n ln 2 + r, |r| <= ln(2)/2, exp(r) by powers of r, times
    2^n, which is added to the exponent."""
    inside = builder.select(builder.fcmp_ordered(">", x, _all(_LEAST)), x, _all(_LEAST))
    whole = _fused(builder, inside, _all(math.log2(math.e)), _all(_TO_WHOLE))
    n = builder.fsub(whole, _all(_TO_WHOLE))
    r = _fused(builder, n, _all(-_LN2_HIGH), inside)
    r = _fused(builder, n, _all(-_LN2_LOW), r)
    series = _all(_SERIES[0])
    for term in _SERIES[1:]:
        series = _fused(builder, r, series, _all(term))
    exponent = builder.shl(builder.bitcast(whole, _INTS), _whole(23))
    value = builder.bitcast(builder.add(builder.bitcast(series, _INTS), exponent), VECTOR)
    return builder.select(builder.fcmp_ordered(">=", x, _all(_LEAST)), value, _all(0.0))


def _each(
    builder: Any, source: Any, start: Any, target: Any, end: Any, value: Callable[[Any, int], Any]
) -> None:
    """target[end + lane] = value(source[start + lane], first lane of its vector), vector by vector."""
    for part in range(0, LANES, WIDTH):
        found = value(load_vector(builder, source.data, builder.add(start, WORD(part))), part)
        store_vector(builder, found, target.data, builder.add(end, WORD(part)))


def _arrays(context: Any, builder: Any, signature: Any, arguments: Any, places: tuple[int, ...]) -> list[Any]:
    return [context.make_array(signature.args[n])(context, builder, arguments[n]) for n in places]


@intrinsic
def rbf_of_squares(typing_context: Any, sums: Any, view: Any, i: Any, rate: Any, out: Any, place: Any) -> Any:
    """out[i, place, lane] = exp(-rate sqrt(sums[view, 0, i, lane])), 0 where that is below e^-87 or no
    number.

    sums: float32 [V, kinds, ., LANES], >= 0; rate: float32, > 0; out: float32 [., places, LANES].
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = _arrays(context, builder, signature, arguments, (0, 4))
        factor = repeated(builder, builder.fneg(arguments[3]))
        kind = ir.FunctionType(VECTOR, [VECTOR])
        root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{WIDTH}f32")

        def value(square: Any, _part: int) -> Any:
            return _exponential(builder, builder.fmul(builder.call(root, [square]), factor))

        start = element(builder, source, arguments[1], WORD(0), arguments[2])
        _each(builder, source, start, target, element(builder, target, arguments[2], arguments[5]), value)
        return context.get_dummy_value()

    return types.void(sums, types.int64, types.int64, types.float32, out, types.int64), generate


@intrinsic
def fourth_power(typing_context: Any, out: Any, i: Any, other: Any, place: Any) -> Any:
    """out[i, place, lane] = out[i, other, lane]^4; out: float32 [., places, LANES]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (values,) = _arrays(context, builder, signature, arguments, (0,))

        def value(number: Any, _part: int) -> Any:
            square = builder.fmul(number, number)
            return builder.fmul(square, square)

        start, end = (element(builder, values, arguments[1], arguments[n]) for n in (2, 3))
        _each(builder, values, start, values, end, value)
        return context.get_dummy_value()

    return types.void(out, types.int64, types.int64, types.int64), generate


@intrinsic
def stretched(typing_context: Any, out: Any, i: Any, place: Any, factor: Any) -> Any:
    """out[i, place, lane] = 1 - factor (1 - out[i, place, lane]), which leaves 1 as it is; out: float32 [.,
    places, LANES]; factor: float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (values,) = _arrays(context, builder, signature, arguments, (0,))
        least = repeated(builder, builder.fneg(arguments[3]))

        def value(number: Any, _part: int) -> Any:
            return _fused(builder, least, builder.fsub(_all(1.0), number), _all(1.0))

        start = element(builder, values, *arguments[1:3])
        _each(builder, values, start, values, start, value)
        return context.get_dummy_value()

    return types.void(out, types.int64, types.int64, types.float32), generate


@intrinsic
def inverse_lengths(typing_context: Any, norms: Any, tile: Any, view: Any, out: Any) -> Any:
    """out[0, lane] = 1 / norms[tile, view, lane]; norms: float32 [tiles, V, LANES], out: [1, LANES]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = _arrays(context, builder, signature, arguments, (0, 3))

        def value(length: Any, _part: int) -> Any:
            return builder.fdiv(_all(1.0), length)

        _each(builder, source, element(builder, source, *arguments[1:3]), target, WORD(0), value)
        return context.get_dummy_value()

    return types.void(norms, types.int64, types.int64, out), generate


@intrinsic
def cosine_of_squares(
    typing_context: Any, sums: Any, view: Any, i: Any, norm: Any, norms: Any, tile: Any, inverses: Any,
    out: Any, place: Any,
) -> Any:  # fmt: skip
    """out[i, place, lane] = 0.5 cos + 0.5 from the squared distance sums[view, 0, i, lane] and both lengths,
    norm and norms[tile, view, lane], 1 over which is inverses[0, lane]; 0.5 where a length is 0.

    1 - (d^2 - (|x| - |y|)^2) / (4 |x| |y|): exact for equal objects, where a rounded cosine is not. A
    division for each pair takes as long as all the rest, so one of each length serves all pairs. sums:
    float32 [V, kinds, ., LANES]; norm: float32; norms: float32 [tiles, V, LANES]; inverses: float32 [1,
    LANES]; out: float32 [., places, LANES].
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, others, inverse, target = _arrays(context, builder, signature, arguments, (0, 4, 6, 7))
        one, kept = repeated(builder, arguments[3]), element(builder, others, arguments[5], arguments[1])
        quarter = repeated(builder, builder.fdiv(_FLOAT(0.25), arguments[3]))

        def value(square: Any, part: int) -> Any:
            other = load_vector(builder, others.data, builder.add(kept, WORD(part)))
            share = builder.fmul(quarter, load_vector(builder, inverse.data, WORD(part)))
            gap = builder.fsub(one, other)
            quotient = builder.fmul(builder.fsub(square, builder.fmul(gap, gap)), share)
            result = builder.fsub(_all(1.0), quotient)
            result = builder.select(builder.fcmp_ordered(">", result, _all(0.0)), result, _all(0.0))
            result = builder.select(builder.fcmp_ordered("<", result, _all(1.0)), result, _all(1.0))
            known = builder.fcmp_ordered("<", share, _all(math.inf))
            return builder.select(known, result, _all(0.5))

        start = element(builder, source, arguments[1], WORD(0), arguments[2])
        _each(builder, source, start, target, element(builder, target, arguments[2], arguments[8]), value)
        return context.get_dummy_value()

    numbers = (types.int64,) * 2
    lengths = (types.float32, norms, types.int64, inverses)
    return types.void(sums, *numbers, *lengths, out, types.int64), generate


# ruff: noqa: PLR0917  (intrinsics take plain arrays)


SIDE_BY_SIDE = 8
"""Kernels in one vector; taus and values of an object fill rows of a multiple of it."""

AT_ONCE = 5
"""Vectors that are summed in turn, so that no addition waits for the one before: the 36 kernels of the
paper."""


def _sum(events: int, vectors: int) -> Any:
    """An intrinsic (triplets, first, last, part, tau, of_query, of_items, group, column, out, event, block):
    out[event + e, block, part + k] = sum over first <= l < last of tau[l, part + k] of_query[group, q_l, x]
    (of_items[group, c_l, x] - of_items[group, s_l, x]), x = column + e width + part + k, for the `events`
    events e and `vectors` * SIDE_BY_SIDE kernels k, float32, in the order of l.

    triplets: int32 [T, 3], slots q_l, c_l, s_l, passed over where q_l < 0; tau: float32 [T, width]; of_query,
    of_items: float32 [groups, slots, a multiple of width]; out: float32 [events, blocks, width];
    C-contiguous, nothing is checked here.
    """

    def sum_triplets(
        typing_context: Any, triplets: Any, first: Any, last: Any, part: Any, tau: Any, of_query: Any,
        of_items: Any, group: Any, column: Any, out: Any, event: Any, block: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            places = (0, 4, 5, 6, 9)
            slots, taus, queries, items, sums = _arrays(context, builder, signature, arguments, places)
            part, group, column = (arguments[n] for n in (3, 7, 8))
            width, row = builder.extract_value(taus.shape, 1), builder.extract_value(queries.shape, 2)
            start = builder.add(element(builder, queries, group), builder.add(column, part))
            columns = [WORD(n * SIDE_BY_SIDE) for n in range(vectors)]
            shifts = [builder.mul(width, WORD(e)) for e in range(events)]
            totals = [[cgutils.alloca_once_value(builder, _ZEROS) for _ in columns] for _ in shifts]
            for total in (one for of_event in totals for one in of_event):
                builder.store(_ZEROS, total)
            bases = (queries.data, items.data, items.data)
            with cgutils.for_range_slice(builder, *arguments[1:3], WORD(1), intp=WORD) as (l, _):
                at = builder.mul(l, WORD(3))
                q, c, s = (
                    builder.sext(builder.load(builder.gep(slots.data, [builder.add(at, WORD(i))])), WORD)
                    for i in range(3)
                )
                with builder.if_then(builder.icmp_signed(">=", q, WORD(0))):
                    steps = builder.add(builder.mul(l, width), part)
                    rows = [builder.add(start, builder.mul(number, row)) for number in (q, c, s)]
                    for n, own in enumerate(columns):
                        t = load_vector(builder, taus.data, builder.add(steps, own))
                        for shift, of_event in zip(shifts, totals, strict=True):
                            k, near, far = (
                                load_vector(builder, base, builder.add(builder.add(one, own), shift))
                                for base, one in zip(bases, rows, strict=True)
                            )
                            term = builder.fmul(builder.fmul(t, k), builder.fsub(near, far), flags=_FUSED)
                            total = builder.fadd(builder.load(of_event[n]), term, flags=_FUSED)
                            builder.store(total, of_event[n])
            for e, of_event in enumerate(totals):
                end = element(builder, sums, builder.add(arguments[10], WORD(e)), arguments[11], part)
                for own, total in zip(columns, of_event, strict=True):
                    store_vector(builder, builder.load(total), sums.data, builder.add(end, own))
            return context.get_dummy_value()

        numbers = (types.int64,) * 3
        places = (types.int64,) * 2
        return types.void(triplets, *numbers, tau, of_query, of_items, *places, out, *places), generate

    return intrinsic(sum_triplets)


few_of_one, many_of_one = _sum(1, 1), _sum(1, AT_ONCE)
few_of_two, many_of_two = _sum(2, 1), _sum(2, AT_ONCE)
