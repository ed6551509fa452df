"""Tables as a warehouse exports them: Parquet, Arrow (Feather) and CSV files, or a folder of files of one
such kind, read with pyarrow batch by batch, in the order of the files' names and of their rows.

A column is named as it stands in the file; `a.b` is field `b` of a column `a` of structs, unless a column has
just that name. pyarrow is imported with the first table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streams.threads import check_threads

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

_FORMATS = {".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc", ".csv": "csv", ".tsv": "csv"}

SUFFIXES = (*_FORMATS, ".csv.gz", ".tsv.gz")
"""How a file's name ends, if it is a table's."""

BATCH_ROWS = 4096
"""Most rows of a batch: of 1,536 float32 each, 25 MB."""

_CSV_BLOCK_BYTES = 8 << 20
"""A row of CSV is shorter than this; twice as much is held in memory."""


class TableError(Exception):
    """A table that cannot be read; `message` names the file and the place in it, `remedy` says what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.message = message
        self.remedy = remedy


def is_table(path: str | Path) -> bool:
    """Whether a path names a table: by the end of its name, or, of a folder, of the names in it."""
    return _suffix(Path(path)) is not None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one file that follow each other, by column.

    first: the number of the first among all rows of the table, from 1, headers not counted. file: what they
    are of. before: how many rows of that file came before.
    """

    first: int
    columns: dict[str, pyarrow.Array[Any]]
    file: str
    before: int

    def place(self, row: int) -> str:
        """Where row `row` of this batch is, for messages: its file, and its number there from 1."""
        return f"{self.file}, row {self.before + row + 1}"


class ReadableTable(Protocol):
    """A table as who reads objects from it sees it; `Table` says what each does. Errors are TableError."""

    columns: tuple[str, ...]

    def rows(self) -> int | None:
        """How many rows it has, None where that is not known."""

    def kind(self, column: str) -> pyarrow.DataType:
        """The type of a column."""

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """The rows, few at a time."""


class Table:
    """A table, opened: its schema is read, its rows are not.

    `text` names columns that CSV must not take for numbers (`007` is an id), `numbers` those that have
    fractions further down; other kinds of file say what their columns are. In CSV an empty field is null, and
    where `words_are_null` so are `NA`, `null`, `nan` and their like. Raises TableError.
    """

    def __init__(
        self,
        path: str | Path,
        text: Collection[str] = (),
        words_are_null: bool = True,
        *,
        numbers: Collection[str] = (),
    ) -> None:
        self.name = str(path)
        place = Path(path)
        suffix = _suffix(place)
        if suffix is None:
            raise TableError(f"{path} is no table", f"the name of one ends in {', '.join(SUFFIXES)}")
        _check_pools()
        self._mapped = _FORMATS[suffix.removesuffix(".gz")] == "ipc"
        self._countable = not suffix.startswith((".csv", ".tsv"))
        with self._errors():
            self._dataset = _open(place, suffix, text, numbers, words_are_null)
            self._schema = self._dataset.schema
            self.columns: tuple[str, ...] = tuple(self._schema.names)
            """The names of its columns, in their order."""

    def rows(self) -> int | None:
        """How many rows it has; None for CSV, which would have to be read for it."""
        if not self._countable:
            return None
        with self._errors():
            return int(self._dataset.count_rows())

    def kind(self, column: str) -> pyarrow.DataType:
        """The type of a column; raises TableError where there is none of this name."""
        parts = self._path(column)
        kind = self._schema.field(parts[0]).type
        for part in parts[1:]:
            kind = kind.field(part).type
        return kind

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """The rows of `columns`, at most `rows` at a time; others are not read, where the file permits.

        Raises TableError, for a column that is missing before the first batch.
        """
        from pyarrow import compute

        wanted = {column: compute.field(*self._path(column)) for column in columns}
        return self._batches(wanted, rows)

    def _batches(self, wanted: dict[str, Any], rows: int) -> Iterator[Batch]:
        first = 1
        for fragment in self._dataset.get_fragments():
            before = 0
            with self._errors(fragment.path):
                # One thread and nothing read ahead: memory stays that of a few batches.
                scanner = fragment.scanner(
                    schema=self._schema,
                    columns=wanted,
                    batch_size=rows,
                    use_threads=False,
                    batch_readahead=1,
                    fragment_readahead=1,
                )
                for batch in scanner.to_batches():
                    if self._mapped:
                        batch.validate(full=True)  # else a damaged one is read beyond its end
                    if len(batch):
                        columns = dict(zip(wanted, batch.columns, strict=True))
                        yield Batch(first, columns, fragment.path, before)
                    first, before = first + len(batch), before + len(batch)

    def _path(self, column: str) -> tuple[str, ...]:
        """The names from a column of the file down to the field that `column` means."""
        import pyarrow

        if column in self.columns:
            return (column,)
        head, _, rest = column.partition(".")
        found: list[str] = []
        kind = pyarrow.struct(list(self._schema))
        while pyarrow.types.is_struct(kind) and kind.get_field_index(head) >= 0:
            found.append(head)
            kind = kind.field(head).type
            if not rest:
                return tuple(found)
            head, _, rest = rest.partition(".")
        known = ", ".join(self.columns[:20]) + (", ..." if len(self.columns) > 20 else "")
        raise TableError(f"{self.name} has no column {column!r}", f"it has {known}")

    @contextmanager
    def _errors(self, file: str = "") -> Iterator[None]:
        """What pyarrow raises for files that are missing, damaged or of another kind, as TableError."""
        import pyarrow

        name = file or self.name
        try:
            yield
        except FileNotFoundError:
            raise TableError(f"{name} does not exist", "correct the path") from None
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            said = str(error).splitlines()[0].rsplit(" file?: ", 1)[-1]
            raise TableError(
                f"{name} cannot be read: {said}", "export it again, or name it by its kind"
            ) from None


def text_values(array: pyarrow.Array[Any]) -> list[str | None]:
    """A column of texts or whole numbers as texts; null stays None. Raises ValueError for any other kind."""
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if types.is_decimal(kind) and kind.scale == 0:  # how warehouses write whole numbers
        array, kind = array.cast(pyarrow.string()), pyarrow.string()
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_integer, types.is_null)
    if not any(fits(kind) for fits in texts):
        raise ValueError(f"is of type {kind}, neither text nor whole numbers")
    values: list[str | None] = array.cast(pyarrow.string()).to_pylist()
    return values


@cache
def _check_pools() -> None:
    """Arrow waits for ever for a thread that could not be started. Raises ThreadLimit."""
    import pyarrow

    check_threads(pyarrow.cpu_count() + pyarrow.io_thread_count() + 1)


def _suffix(path: Path) -> str | None:
    """How the name of the table ends; of a folder, that of the first file in it that is one."""
    if not path.is_dir():
        return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)
    files = sorted(one.name.lower() for one in path.rglob("*") if not one.name.startswith((".", "_")))
    return next((suffix for name in files for suffix in SUFFIXES if name.endswith(suffix)), None)


def _open(
    path: Path, suffix: str, text: Collection[str], numbers: Collection[str], words_are_null: bool
) -> pyarrow.dataset.Dataset:
    import pyarrow
    import pyarrow.csv
    import pyarrow.dataset as datasets

    kind = _FORMATS[suffix.removesuffix(".gz")]
    if kind == "csv":
        form: Any = datasets.CsvFileFormat(
            parse_options=pyarrow.csv.ParseOptions(
                delimiter="\t" if suffix.startswith(".tsv") else ",", newlines_in_values=True
            ),
            read_options=pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={
                    **dict.fromkeys(numbers, pyarrow.float64()),
                    **dict.fromkeys(text, pyarrow.string()),
                },
                strings_can_be_null=True,
                null_values=None if words_are_null else [""],
            ),
        )
    elif kind == "parquet":
        # Row groups may hold a million vectors: they are not read whole.
        form = datasets.ParquetFileFormat(
            default_fragment_scan_options=datasets.ParquetFragmentScanOptions(
                use_buffered_stream=True, pre_buffer=False
            )
        )
    else:
        form = kind
    if path.is_dir():
        files = [str(one) for one in sorted(path.rglob("*")) if one.name.lower().endswith(suffix)]
        return datasets.dataset(files, format=form)
    return datasets.dataset(str(path), format=form)
