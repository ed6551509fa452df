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

AHEAD = 32
"""Entries of a row beyond those in use that are asked of memory: those of the next panel."""

_FLOAT, _DOUBLE, _BYTE = ir.FloatType(), ir.DoubleType(), ir.IntType(8)
_DOUBLES, _FOUR = ir.VectorType(_DOUBLE, WIDTH), ir.VectorType(_FLOAT, TALL)
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


def _ask(builder: Any, base: Any, place: Any) -> None:
    """Prefetch: a hint, also beyond the end, and never a fault."""
    byte = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, INT, INT, INT])
    hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    builder.call(hint, [builder.bitcast(builder.gep(base, [place]), byte), INT(0), INT(3), INT(1)])


def _products(
    builder: Any, totals: list[Any], factors: Any, at: At, panel: Any, first: Any, stride: Any, count: Any,
    kept: Any = None,
) -> None:  # fmt: skip
    """totals[r, :] += sum over n < count of factors[at(n, r)] * panel[first + n stride + :].

    kept: where the panel's rows are put side by side on the way, its next columns being asked for.
    """
    with cgutils.for_range_slice(builder, WORD(0), count, WORD(1), intp=WORD) as (n, _):
        place = builder.add(first, builder.mul(n, stride))
        columns = [load_vector(builder, panel, builder.add(place, WORD(v * WIDTH))) for v in range(VECTORS)]
        if kept is not None:
            _ask(builder, panel, builder.add(place, WORD(AHEAD)))
            _ask(builder, panel, builder.add(place, WORD(AHEAD + WIDTH * 2 - 1)))
            for v, column in enumerate(columns):
                _store(builder, column, kept, builder.add(builder.mul(n, WORD(WIDE)), WORD(v * WIDTH)))
        for r in range(TALL):
            factor = repeated(builder, builder.load(builder.gep(factors, [at(n, r)])))
            for v, column in enumerate(columns):
                _add(builder, totals[r * VECTORS + v], factor, column)


def _across(first_rows: bool) -> Any:
    """An intrinsic (left, from, stride, W, place, row, panel, count, right, column, sums, out): of TALL rows,
    sums[out + r WIDTH + lane] += the products of left's row r, from `from` on, with `count` rows of the
    panel, times right's row r from `column` on, in float64, by lane = column mod WIDTH.

    left, right: float32, rows `stride` apart. W: float32; its rows of WIDE columns from `place` on, `row`
    apart, are the panel and are put there where `first_rows`; else they are taken from `panel`, float32
    [count WIDE]. sums: float64. Nothing is checked here.
    """

    def across(
        typing_context: Any, left: Any, start: Any, stride: Any, W: Any, place: Any, row: Any,
        panel: Any, count: Any, right: Any, column: Any, sums: Any, out: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            lefts, matrix, kept, rights, results = _data(
                context, builder, signature, arguments, (0, 3, 6, 8, 10)
            )
            _, start, stride, _, place, row, _, count, _, column, _, out = arguments
            totals = _places(builder, VECTOR, TALL * VECTORS)
            rows = [builder.mul(stride, WORD(r)) for r in range(TALL)]
            starts = [builder.add(start, one) for one in rows]

            def at(n: Any, r: int) -> Any:
                return builder.add(starts[r], n)

            if first_rows:
                _products(builder, totals, lefts, at, matrix, place, row, count, kept)
            else:
                _products(builder, totals, lefts, at, kept, WORD(0), WORD(WIDE), count)
            for r in range(TALL):
                here = builder.add(out, WORD(r * WIDTH))
                total = cgutils.alloca_once(builder, _DOUBLES)
                builder.store(_wide(builder, results, here, _DOUBLES), total)
                for v in range(VECTORS):
                    other = builder.add(builder.add(column, rows[r]), WORD(v * WIDTH))
                    product = builder.fpext(builder.load(totals[r * VECTORS + v]), _DOUBLES)
                    factor = builder.fpext(load_vector(builder, rights, other), _DOUBLES)
                    _add(builder, total, product, factor)
                _store(builder, builder.load(total), results, here)
            return context.get_dummy_value()

        return types.void(left, _I, _I, W, _I, _I, panel, _I, right, _I, sums, _I), generate

    return intrinsic(across)


across_first, across_next = _across(True), _across(False)


@intrinsic
def update_tile(
    typing_context: Any, W: Any, place: Any, row: Any, factors: Any, first: Any, panel: Any, count: Any
) -> Any:
    """W[place + r row + :] += factors[first + n TALL + r] * panel[n WIDE + :], for n = 0..count-1 in order,
    each product and sum rounded once; TALL rows, WIDE columns; float32, nothing is checked here."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        matrix, multipliers, rows = _data(context, builder, signature, arguments, (0, 3, 5))
        _, place, row, _, first, _, count = arguments
        totals = [cgutils.alloca_once(builder, VECTOR) for _ in range(TALL * VECTORS)]
        lines = [builder.add(place, builder.mul(row, WORD(r))) for r in range(3 * TALL)]
        entries = [builder.add(lines[r], WORD(v * WIDTH)) for r in range(TALL) for v in range(VECTORS)]
        for entry, total in zip(entries, totals, strict=True):
            builder.store(load_vector(builder, matrix, entry), total)
        for line in lines[2 * TALL :]:
            _ask(builder, matrix, line)
            _ask(builder, matrix, builder.add(line, WORD(WIDE - 1)))

        def at(n: Any, r: int) -> Any:
            return builder.add(builder.add(first, builder.mul(n, WORD(TALL))), WORD(r))

        _products(builder, totals, multipliers, at, rows, WORD(0), WORD(WIDE), count)
        for entry, total in zip(entries, totals, strict=True):
            _store(builder, builder.load(total), matrix, entry)
        return context.get_dummy_value()

    return types.void(W, _I, _I, factors, _I, panel, _I), generate


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
def scale_rows(typing_context: Any, source: Any, start: Any, factor: Any, target: Any, place: Any) -> Any:
    """target[place..] = factor * source[start..], TALL numbers; float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given, taken = _data(context, builder, signature, arguments, (0, 3))
        nothing = ir.Constant(_FOUR, ir.Undefined)
        one = builder.insert_element(nothing, arguments[2], INT(0))
        same = builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(INT, TALL), [0] * TALL))
        scaled = builder.fmul(same, _wide(builder, given, arguments[1], _FOUR))
        _store(builder, scaled, taken, arguments[4])
        return context.get_dummy_value()

    return types.void(source, _I, types.float32, target, _I), generate


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


PAIRS = 4
"""Pairs of rows that `dot_pairs` multiplies at once."""


@intrinsic
def dot_pairs(
    typing_context: Any, pairs: Any, first: Any, stride: Any, even: Any, odd: Any, start: Any, count: Any,
    out: Any, place: Any,
) -> Any:  # fmt: skip
    """out[place + n] = row n of pairs, from `first` on and `stride` apart, times `even` for an even n, `odd`
    for an odd one, both from `start` on, for n < 2 PAIRS; `count` numbers of each, a multiple of WIDTH.

    pairs, even, odd: float32, out: float64. A product is summed in float32, by lane.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, evens, odds, results = _data(context, builder, signature, arguments, (0, 3, 4, 7))
        _, first, stride, _, _, start, count, _, place = arguments
        totals = _places(builder, VECTOR, 2 * PAIRS)
        with cgutils.for_range_slice(builder, WORD(0), count, WORD(WIDTH), intp=WORD) as (n, _):
            here = builder.add(start, n)
            mine = [load_vector(builder, one, here) for one in (evens, odds)]
            for row, total in enumerate(totals):
                at = builder.add(builder.add(first, n), builder.mul(stride, WORD(row)))
                _add(builder, total, mine[row % 2], load_vector(builder, rows, at))
        for row, total in enumerate(totals):
            dot = builder.fpext(sum_of_vector(builder, builder.load(total)), _DOUBLE)
            builder.store(dot, builder.gep(results, [builder.add(place, WORD(row))]))
        return context.get_dummy_value()

    return types.void(pairs, _I, _I, even, odd, _I, _I, out, _I), generate


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
