"""Tiles of the two matrix products that a delayed update is made of, its dot products, and its rows.

Written in LLVM's own vectors: twelve sums of 8 lanes, 4 rows by 24 columns, stay in registers while a loop
goes over what is summed, and 7 loads feed 12 fused products. That is the largest tile of 16 registers.

Every sum has one order, whatever else is computed beside it: a lane is one chain of fused products in the
order of the loop, so a number depends neither on the tile it lies in nor on how many rows were given.
"""

# ruff: noqa: PLR0917  (intrinsics take plain arrays)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from learners.kernels.intrinsics import sum_of_vector
from learners.kernels.tiles import INT, VECTOR, WIDTH, WORD, load_vector, repeated, transposed

TALL, VECTORS = 4, 3
WIDE = WIDTH * VECTORS
"""A tile: TALL rows of WIDE columns."""

BAND = 2 * WIDE
"""Columns that are gone through together: two tiles side by side, so that few lines of memory are used in
part."""

LINE = 16
"""Numbers of a line of memory."""

_FLOAT, _DOUBLE, _BYTE = ir.FloatType(), ir.DoubleType(), ir.IntType(8)
_DOUBLES = ir.VectorType(_DOUBLE, WIDTH)
_BITS = ir.VectorType(ir.IntType(1), WIDTH)
_FUSED = ("contract",)
_I = types.int64

At = Callable[[Any, int], Any]


def _data(context: Any, builder: Any, signature: Any, arguments: Any, places: tuple[int, ...]) -> list[Any]:
    return [context.make_array(signature.args[n])(context, builder, arguments[n]).data for n in places]


def _store(builder: Any, value: Any, base: Any, index: Any) -> None:
    address = builder.bitcast(builder.gep(base, [index]), value.type.as_pointer())
    builder.store(value, address).align = 4


def _wide(builder: Any, base: Any, index: Any, kind: Any) -> Any:
    loaded = builder.load(builder.bitcast(builder.gep(base, [index]), kind.as_pointer()))
    loaded.align = 4
    return loaded


def _add(builder: Any, total: Any, left: Any, right: Any) -> None:
    """total, a place of a vector, += left right, rounded once."""
    product = builder.fmul(left, right, flags=_FUSED)
    builder.store(builder.fadd(product, builder.load(total), flags=_FUSED), total)


def _places(builder: Any, kind: Any, count: int) -> list[Any]:
    """Sums that stay in registers, 0."""
    places = [cgutils.alloca_once(builder, kind) for _ in range(count)]
    for place in places:
        builder.store(ir.Constant(kind, [0.0] * WIDTH), place)
    return places


def _products(builder: Any, totals: list[Any], factors: Any, at: At, panel: Any, count: Any) -> None:
    """totals[r, :] += sum over n < count of factors[at(n, r)] * panel[n WIDE + :]."""
    with cgutils.for_range_slice(builder, WORD(0), count, WORD(1), intp=WORD) as (n, _):
        place = builder.mul(n, WORD(WIDE))
        columns = [load_vector(builder, panel, builder.add(place, WORD(v * WIDTH))) for v in range(VECTORS)]
        for r in range(TALL):
            factor = repeated(builder, builder.load(builder.gep(factors, [at(n, r)])))
            for v, column in enumerate(columns):
                _add(builder, totals[r * VECTORS + v], factor, column)


def _entries(builder: Any, base: Any, place: Any, row: Any) -> list[Any]:
    """Where the vectors of a tile begin, whose rows are `row` apart."""
    lines = [builder.add(place, builder.mul(row, WORD(r))) for r in range(TALL)]
    return [builder.gep(base, [builder.add(line, WORD(v * WIDTH))]) for line in lines for v in range(VECTORS)]


def _loaded(builder: Any, entries: list[Any]) -> list[Any]:
    """Sums that stay in registers, begun with what lies there."""
    totals = [cgutils.alloca_once(builder, VECTOR) for _ in entries]
    for entry, total in zip(entries, totals, strict=True):
        builder.store(load_vector(builder, entry, WORD(0)), total)
    return totals


def _put(builder: Any, totals: list[Any], entries: list[Any]) -> None:
    for entry, total in zip(entries, totals, strict=True):
        _store(builder, builder.load(total), entry, WORD(0))


@intrinsic
def ask_rows(typing_context: Any, W: Any, place: Any, row: Any, count: Any) -> Any:
    """Prefetch `count` rows of BAND numbers from `place` on, `row` apart: hints, also beyond the end."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (matrix,) = _data(context, builder, signature, arguments, (0,))
        _, place, row, count = arguments
        byte = _BYTE.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, INT, INT, INT])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        with cgutils.for_range_slice(builder, WORD(0), count, WORD(1), intp=WORD) as (n, _):
            start = builder.add(place, builder.mul(n, row))
            for step in (
                *range(0, BAND, LINE),
                BAND - 1,
            ):  # the last is a line of its own where none is whole
                address = builder.bitcast(builder.gep(matrix, [builder.add(start, WORD(step))]), byte)
                builder.call(hint, [address, INT(0), INT(3), INT(1)])
        return context.get_dummy_value()

    return types.void(W, _I, _I, _I), generate


@intrinsic
def product_tile(
    typing_context: Any, left: Any, start: Any, stride: Any, panel: Any, begin: Any, count: Any,
    sums: Any, place: Any,
) -> Any:  # fmt: skip
    """sums[place + r WIDE + :] += left[start + r stride + n] * panel[begin + n WIDE + :], n = 0..count-1 in
    order, each product and sum rounded once; TALL rows, WIDE columns; float32, nothing is checked here."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lefts, rows, results = _data(context, builder, signature, arguments, (0, 3, 6))
        _, start, stride, _, begin, count, _, place = arguments
        starts = [builder.add(start, builder.mul(stride, WORD(r))) for r in range(TALL)]
        entries = _entries(builder, results, place, WORD(WIDE))
        totals = _loaded(builder, entries)
        panels = builder.gep(rows, [begin])
        _products(builder, totals, lefts, lambda n, r: builder.add(starts[r], n), panels, count)
        _put(builder, totals, entries)
        return context.get_dummy_value()

    return types.void(left, _I, _I, panel, _I, _I, sums, _I), generate


@intrinsic
def weigh_row(
    typing_context: Any, sums: Any, place: Any, right: Any, start: Any, out: Any, there: Any
) -> Any:
    """out[there + lane] += sums[place + column] * right[start + column], WIDE columns, one of a lane after
    the other, in float64. sums, right: float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        products, rights, results = _data(context, builder, signature, arguments, (0, 2, 4))
        _, place, _, start, _, there = arguments
        total = cgutils.alloca_once(builder, _DOUBLES)
        builder.store(_wide(builder, results, there, _DOUBLES), total)
        for v in range(VECTORS):
            step = WORD(v * WIDTH)
            mine = load_vector(builder, products, builder.add(place, step))
            other = load_vector(builder, rights, builder.add(start, step))
            _add(builder, total, builder.fpext(mine, _DOUBLES), builder.fpext(other, _DOUBLES))
        _store(builder, builder.load(total), results, there)
        return context.get_dummy_value()

    return types.void(sums, _I, right, _I, out, _I), generate


@intrinsic
def update_tile(
    typing_context: Any, W: Any, place: Any, row: Any, factors: Any, first: Any, stride: Any, panel: Any,
    begin: Any, count: Any, kept: Any, put: Any,
) -> Any:  # fmt: skip
    """W[place + r row + :] += factors[first + n stride + r] * panel[begin + n WIDE + :], n = 0..count-1 in
    order, each product and sum rounded once; TALL rows, WIDE columns, put side by side into kept[put..] as
    well; float32, nothing is checked here."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        matrix, multipliers, rows, copies = _data(context, builder, signature, arguments, (0, 3, 6, 9))
        _, place, row, _, first, stride, _, begin, count, _, put = arguments
        entries = _entries(builder, matrix, place, row)
        totals = _loaded(builder, entries)

        def at(n: Any, r: int) -> Any:
            return builder.add(builder.add(first, builder.mul(n, stride)), WORD(r))

        _products(builder, totals, multipliers, at, builder.gep(rows, [begin]), count)
        _put(builder, totals, entries)
        _put(builder, totals, _entries(builder, copies, put, WORD(WIDE)))
        return context.get_dummy_value()

    return types.void(W, _I, _I, factors, _I, _I, panel, _I, _I, kept, _I), generate


@intrinsic
def copy_columns(typing_context: Any, source: Any, start: Any, target: Any, place: Any) -> Any:
    """target[place..] = source[start..], WIDE numbers; float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given, taken = _data(context, builder, signature, arguments, (0, 2))
        for v in range(VECTORS):
            step = WORD(v * WIDTH)
            vector = load_vector(builder, given, builder.add(arguments[1], step))
            _store(builder, vector, taken, builder.add(arguments[3], step))
        return context.get_dummy_value()

    return types.void(source, _I, target, _I), generate


@intrinsic
def mirror_tile(typing_context: Any, W: Any, place: Any, mirrored: Any, row: Any) -> Any:
    """W[mirrored + b row + a] = W[place + a row + b] for a, b < WIDTH; float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (matrix,) = _data(context, builder, signature, arguments, (0,))
        _, place, other, row = arguments
        steps = [builder.mul(row, WORD(r)) for r in range(WIDTH)]
        rows = [load_vector(builder, matrix, builder.add(place, step)) for step in steps]
        for turned, step in zip(transposed(builder, rows), steps, strict=True):
            _store(builder, turned, matrix, builder.add(other, step))
        return context.get_dummy_value()

    return types.void(W, _I, _I, _I), generate


@intrinsic
def sum_of_lanes(typing_context: Any, sums: Any, place: Any) -> Any:
    """The sum of WIDTH neighbouring numbers, pairwise; float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (lanes,) = _data(context, builder, signature, arguments, (0,))
        return sum_of_vector(builder, _wide(builder, lanes, arguments[1], _DOUBLES))

    return types.float64(sums, _I), generate


EVENTS, STEPS = 3, 4
"""Events and steps of which `dot_tile` tells all products at once."""


@intrinsic
def dot_tile(
    typing_context: Any, steps: Any, first: Any, apart: Any, events: Any, start: Any, stride: Any,
    count: Any, out: Any, place: Any,
) -> Any:  # fmt: skip
    """out[place + i EVENTS + u] = row i of steps, from `first` on and `apart` apart, times row u of events,
    from `start` on and `stride` apart, for i < STEPS, u < EVENTS; `count` numbers, a multiple of WIDTH.

    steps, events: float32, out: float64. A product is summed in float32, by lane.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lefts, rights, results = _data(context, builder, signature, arguments, (0, 3, 7))
        _, first, apart, _, start, stride, count, _, place = arguments
        rows = [builder.add(first, builder.mul(apart, WORD(i))) for i in range(STEPS)]
        columns = [builder.add(start, builder.mul(stride, WORD(u))) for u in range(EVENTS)]
        totals = _places(builder, VECTOR, STEPS * EVENTS)
        with cgutils.for_range_slice(builder, WORD(0), count, WORD(WIDTH), intp=WORD) as (n, _):
            mine = [load_vector(builder, rights, builder.add(column, n)) for column in columns]
            for i, row in enumerate(rows):
                other = load_vector(builder, lefts, builder.add(row, n))
                for u, one in enumerate(mine):
                    _add(builder, totals[i * EVENTS + u], one, other)
        for n, total in enumerate(totals):
            dot = builder.fpext(sum_of_vector(builder, builder.load(total)), _DOUBLE)
            builder.store(dot, builder.gep(results, [builder.add(place, WORD(n))]))
        return context.get_dummy_value()

    return types.void(steps, _I, _I, events, _I, _I, _I, out, _I), generate


@intrinsic
def sides(
    typing_context: Any, triplet: Any, count: Any, distance: Any, most: Any, left: Any, right: Any,
    place: Any, norms: Any,
) -> Any:  # fmt: skip
    """right[place..] = c - s; left[place..] = q, or (q - c) + (q - s) for a distance; norms[0..2] = left .
    left, right . right, left . right, in float64 by lane.

    triplet: float32 [3 count], q, c and s, `count` numbers each, a multiple of WIDTH. Returned, int64: bits
    0-7 where a value is above `most` or no number, bits 8-15, 16-23 and 24-31 where q, c and s are not 0,
    each by lane. left, right, most: float32; norms: float64.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given, lefts, rights, results = _data(context, builder, signature, arguments, (0, 4, 5, 7))
        _, count, distance, most, _, _, place, _ = arguments
        starts = [builder.mul(count, WORD(n)) for n in range(3)]
        totals = _places(builder, _DOUBLES, 3)
        flags = [cgutils.alloca_once(builder, _BITS) for _ in range(4)]
        for flag in flags:
            builder.store(ir.Constant(_BITS, [0] * WIDTH), flag)
        bar, zero = repeated(builder, most), ir.Constant(VECTOR, [0.0] * WIDTH)
        kind = ir.FunctionType(VECTOR, [VECTOR])
        absolute = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fabs.v{WIDTH}f32")
        with cgutils.for_range_slice(builder, WORD(0), count, WORD(WIDTH), intp=WORD) as (n, _):
            there = builder.add(place, n)
            q, c, s = (load_vector(builder, given, builder.add(start, n)) for start in starts)
            for vector, flag in zip((q, c, s), flags[1:], strict=True):
                wrong = builder.not_(builder.fcmp_ordered("<=", builder.call(absolute, [vector]), bar))
                builder.store(builder.or_(builder.load(flags[0]), wrong), flags[0])
                held = builder.fcmp_unordered("!=", vector, zero)
                builder.store(builder.or_(builder.load(flag), held), flag)
            error = builder.fsub(c, s)
            both = builder.fadd(builder.fsub(q, c), builder.fsub(q, s))
            mine = builder.select(distance, both, q)
            _store(builder, mine, lefts, there)
            _store(builder, error, rights, there)
            x, y = builder.fpext(mine, _DOUBLES), builder.fpext(error, _DOUBLES)
            for total, factors in zip(totals, ((x, x), (y, y), (x, y)), strict=True):
                _add(builder, total, *factors)
        for n, total in enumerate(totals):
            builder.store(sum_of_vector(builder, builder.load(total)), builder.gep(results, [WORD(n)]))
        told = WORD(0)
        for n, flag in enumerate(flags):
            bits = builder.zext(builder.bitcast(builder.load(flag), _BYTE), WORD)
            told = builder.or_(told, builder.shl(bits, WORD(8 * n)))
        return told

    return types.int64(triplet, _I, types.boolean, types.float32, left, right, _I, norms), generate
