"""Exact integer products of 8-bit with 16-bit codes, for the quick scan of a search over dense items.

Written in LLVM's own vectors: numba widens every product of integers to 64 bits, which no processor
multiplies side by side, while 16-bit products summed in 32 bits are one instruction for sixteen of them.

Inner products of sparse rows with float32 lanes side by side, for the quick scan of a search.

Written in LLVM's own vectors, because no plain loop compiles to them: a strict sum waits for every addition,
and lanes kept in an array go through memory. The order of summation is fixed here, so one machine gives the
same bits in every call; nothing that is answered depends on it (see `learners.search.topk`).

Rows are padded: a row's places `start..stop` are a multiple of LANES apart, with value 0 where it has no
entry.

Software prefetch for numba kernels, through LLVM's `llvm.prefetch`.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

STRIDE = 32
"""Codes that are multiplied at once; rows are padded to a multiple of it, with codes 0."""

_CODE_WORD, _CODE_INT, _SHORT, _BYTE = (ir.IntType(bits) for bits in (64, 32, 16, 8))
_WIDE = ir.VectorType(_CODE_INT, STRIDE)


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
        with cgutils.for_range_slice(builder, _CODE_WORD(0), width, _CODE_WORD(STRIDE), intp=_CODE_WORD) as (
            place,
            _,
        ):
            product = builder.mul(
                _load_codes(builder, places[0], place, _BYTE), _load_codes(builder, places[1], place, _SHORT)
            )
            builder.store(builder.add(builder.load(total), product), total)
        return _sum_of_lanes_codes(builder, builder.load(total))

    return types.int32(codes, types.int64, queries, types.int64), generate


def _load_codes(builder: Any, base: Any, index: Any, kind: Any) -> Any:
    """STRIDE neighbouring integers of any alignment, widened to 32 bits."""
    narrow = ir.VectorType(kind, STRIDE)
    loaded = builder.load(builder.bitcast(builder.gep(base, [index]), narrow.as_pointer()))
    loaded.align = 1
    return builder.sext(loaded, _WIDE)


def _sum_of_lanes_codes(builder: Any, vector: Any) -> Any:
    kind = ir.FunctionType(_CODE_INT, [_WIDE])
    name = f"llvm.vector.reduce.add.v{STRIDE}i32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])


LANES = 8
"""Entries of one row that are multiplied at once; rows are padded to a multiple of it."""

QUERIES = 16
"""Queries that share one reading of the items."""

CHAINS = 4
"""Sums that `dot_queries` builds in turn, so that no addition waits for the one before."""

AHEAD = 1024
"""Entries ahead of those in use that are asked of memory: the processor's own prefetch stays too near for
rows that cost so little each. Measured flat from 1,024 to 8,192."""

_FLOAT, _WORD, _INT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_FUSED = ("contract",)


@intrinsic
def dot_entries(typing_context: Any, query: Any, columns: Any, values: Any, start: Any, stop: Any) -> Any:
    """sum over places start..stop-1 of query[columns[place]] * values[place], float32.

    query, values: float32 one-dimensional; columns: unsigned, one-dimensional, each below len(query), not
    checked here.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weights, places, factors = _pointers(context, builder, signature.args[:3], arguments[:3])
        total = cgutils.alloca_once_value(builder, ir.Constant(_floats(LANES), [0.0] * LANES))
        first, last = arguments[3:]
        with cgutils.for_range_slice(builder, first, last, _WORD(LANES), intp=_WORD) as (place, _):
            _ask_for(builder, (places, factors), place)
            gathered = ir.Constant(_floats(LANES), ir.Undefined)
            for lane in range(LANES):
                column = _column(builder, places, builder.add(place, _WORD(lane)))
                weight = builder.load(builder.gep(weights, [column]))
                gathered = builder.insert_element(gathered, weight, _INT(lane))
            _add_product(builder, total, gathered, _load(builder, factors, place, LANES))
        return sum_of_vector(builder, builder.load(total))

    return types.float32(query, columns, values, types.int64, types.int64), generate


@intrinsic
def dot_queries(
    typing_context: Any, queries: Any, columns: Any, values: Any, start: Any, stop: Any, out: Any
) -> Any:
    """out[n] = sum over places start..stop-1 of queries[columns[place] * QUERIES + n] * values[place].

    queries: float32 [dim * QUERIES], the queries' numbers for one column side by side; out: float32
    [QUERIES]. Else as `dot_entries`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = (*signature.args[:3], signature.args[5])
        weights, places, factors, results = _pointers(context, builder, kinds, (*arguments[:3], arguments[5]))
        zero = ir.Constant(_floats(QUERIES), [0.0] * QUERIES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(CHAINS)]
        first, last = arguments[3:5]
        with cgutils.for_range_slice(builder, first, last, _WORD(CHAINS), intp=_WORD) as (place, _):
            _ask_for(builder, (places, factors), place)
            for chain, total in enumerate(sums):
                here = builder.add(place, _WORD(chain))
                column = builder.mul(_column(builder, places, here), _WORD(QUERIES))
                factor = _repeated(builder, builder.load(builder.gep(factors, [here])), QUERIES)
                _add_product(builder, total, _load(builder, weights, column, QUERIES), factor)
        left, right, more, rest = (builder.load(total) for total in sums)
        total = builder.fadd(builder.fadd(left, right), builder.fadd(more, rest))
        builder.store(total, builder.bitcast(results, _floats(QUERIES).as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(queries, columns, values, types.int64, types.int64, out), generate


@intrinsic
def reached(
    typing_context: Any,
    quick: Any,
    lengths: Any,
    least: Any,
    radius: Any,
    floor: Any,
    factor: Any,
    added: Any,
) -> Any:
    """Bit n is set unless (quick[n] + (radius * lengths[n] + floor)) * factor + added < least[n]; int64.

    quick, lengths, least: float32 [QUERIES]; radius, floor, factor, added: float32. NaN sets the bit.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = _pointers(context, builder, signature.args[:3], arguments[:3])
        sums, norms, bars = (_load(builder, place, _WORD(0), QUERIES) for place in places)
        around, lost, scale, more = (_repeated(builder, number, QUERIES) for number in arguments[3:])
        most = builder.fmul(builder.fadd(sums, builder.fadd(builder.fmul(around, norms), lost)), scale)
        most = builder.fadd(most, more)
        bits = builder.bitcast(builder.fcmp_unordered(">=", most, bars), ir.IntType(QUERIES))
        return builder.zext(bits, _WORD)

    floats = (types.float32,) * 4
    return types.int64(quick, lengths, least, *floats), generate


def _floats(lanes: int) -> Any:
    return ir.VectorType(_FLOAT, lanes)


def _pointers(context: Any, builder: Any, kinds: Any, arrays: Any) -> list[Any]:
    pairs = zip(kinds, arrays, strict=True)
    return [context.make_array(kind)(context, builder, array).data for kind, array in pairs]


def _column(builder: Any, columns: Any, place: Any) -> Any:
    return builder.zext(builder.load(builder.gep(columns, [place])), _WORD)


def _ask_for(builder: Any, bases: Any, place: Any) -> None:
    """Prefetch what lies AHEAD of `place`, to be read once: hints, also beyond the end, and never faults."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
    hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    for base in bases:
        address = builder.gep(base, [builder.add(place, _WORD(AHEAD))])
        builder.call(hint, [builder.bitcast(address, byte), _INT(0), _INT(3), _INT(1)])


def _load(builder: Any, base: Any, index: Any, lanes: int) -> Any:
    """`lanes` neighbouring numbers, of any alignment."""
    address = builder.bitcast(builder.gep(base, [index]), _floats(lanes).as_pointer())
    loaded = builder.load(address)
    loaded.align = 4
    return loaded


def _repeated(builder: Any, number: Any, lanes: int) -> Any:
    nothing = ir.Constant(_floats(lanes), ir.Undefined)
    one = builder.insert_element(nothing, number, _INT(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_INT, lanes), [0] * lanes))


def _add_product(builder: Any, total: Any, left: Any, right: Any) -> None:
    product = builder.fmul(left, right, flags=_FUSED)
    builder.store(builder.fadd(builder.load(total), product, flags=_FUSED), total)


def sum_of_vector(builder: Any, vector: Any) -> Any:
    """The sum of the lanes of a vector, pairwise."""
    lanes = vector.type.count
    while lanes > 1:
        lanes //= 2
        nothing = ir.Constant(vector.type, ir.Undefined)
        halves = [
            builder.shuffle_vector(
                vector, nothing, ir.Constant(ir.VectorType(_INT, lanes), list(range(first, first + lanes)))
            )
            for first in (0, lanes)
        ]
        vector = builder.fadd(*halves)
    return builder.extract_element(vector, _INT(0))


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
