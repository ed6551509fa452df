"""Sums over the dimensions of a view for a tile of objects side by side: what kernel values are made of.

A tile is LANES objects, stored dimension by dimension: `rows[tile, dimension, lane]`. Each lane is one plain
sum in the order of the dimensions, so a value depends neither on the slot an object lies in nor on its
neighbours. Written in LLVM's own vectors, because sums kept in an array go through memory.
"""

# ruff: noqa: PLR0917  (intrinsics take plain arrays)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from learners.kernels import cpu as _cpu  # noqa: F401  (fixes the CPU level before numba is imported)

from llvmlite import ir  # isort: skip
from numba.core import cgutils, types  # isort: skip
from numba.extending import intrinsic  # isort: skip

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
                for lane, turned in enumerate(_transposed(builder, rows)):
                    slot = builder.add(arguments[3], WORD(part + lane))
                    address = builder.gep(target.data, [builder.add(builder.mul(slot, width), k)])
                    builder.store(turned, builder.bitcast(address, VECTOR.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, types.int64, out), generate


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
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
