"""Requests and answers as models: what is checked, and what the OpenAPI document says of it.

Values are strict (no "10" for 10, no true for 1) and finite, unknown fields are errors. 1.0 is the whole
number 1, as JSON Schema has it, since some languages write it so. A list ends at its first error
(`fail_fast`): a million wrong numbers cost no more than one. What depends on settings (how large k may be) is
checked in `similar.py`. What the document allows is accepted, except a sparse vector whose lists do not go
together, for which JSON Schema has no words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic.config import JsonDict
from starlette.datastructures import QueryParams

from daemon.serve.http.errors import DENSE, NAME, NUMBER, SPARSE, Problem, from_validation
from daemon.serve.query import ByKey, FoldedView, HitClicks, OfIndex, OrderedBy, ViewShare
from streams.limits import MAX_INDEX, MAX_KEY_BYTES, MAX_MAP_ENTRIES, MAX_SHOWN, MAX_TEXT_BYTES, MAX_TS

MAX_IMPRESSION_BYTES = MAX_TEXT_BYTES - 32
"""One id of a list in UTF-8, as long as the longest that is signed: the ids of events are made of it."""
MAX_LIST = 10_000
"""Entries of a list of ids or queries; serve.batch_max allows no more queries either."""
EXPLAINED = 100
"""Hits of one question that are explained."""
MAX_VECTOR = 262_144
"""Numbers in one vector: as many as the largest event (1 MiB) has room for."""


class Request(BaseModel):
    """Base of all that clients send: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    IN_ADDRESS: ClassVar[Mapping[str, bool]] = {}
    """The fields that may be parameters of an address, each once, with whether it must be there."""

    @classmethod
    def of_address(cls, parameters: QueryParams) -> Self:
        """The request that the parameters of an address make. Raises Problem 422 naming the parameter."""
        pairs, known = parameters.multi_items(), cls.IN_ADDRESS
        for name, count in Counter(name for name, _ in pairs if known).items():
            if name not in known:
                message = f"{', '.join(known)} are known"
                raise Problem(422, "unknown_field", "unknown parameter", name[:80], message)
            if count > 1:
                raise Problem(422, "bad_value", f"{name} is given {count} times", name, "give it once")
        try:
            return cls.model_validate_strings(dict(pairs), strict=False)
        except ValidationError as error:
            raise from_validation(error) from None


class Answer(BaseModel):
    """Base of all that the server sends."""

    model_config = ConfigDict(extra="forbid")


def _bytes_to(most: int, fits: Callable[[str], object] = bool, but: str = "") -> AfterValidator:
    """Texts of 1 to `most` bytes of UTF-8 that fit. but: what else is expected, in words."""

    def check(text: str) -> str:
        if not fits(text) or len(text.encode()) > most:
            raise ValueError(f"expected 1 to {most} bytes of UTF-8{but}")
        return text

    return AfterValidator(check)


def _utf8(most: int, first: str) -> WithJsonSchema:
    """Texts of 1 to `most` bytes with characters from `first` on. JSON Schema counts characters: here each as
    the widest of a text, so that a few mixed ones are allowed by the server alone.
    """
    ends = ((1, r"\u007f"), (2, r"\u07ff"), (3, r"\uffff"))
    narrow = [{"maxLength": most // wide, "pattern": f"^[{first}-{end}]*$"} for wide, end in ends]
    widest: dict[str, Any] = {"maxLength": most // 4}
    if first != r"\u0000":
        widest["pattern"] = r"^[^\u0000]*$"
    return WithJsonSchema({"type": "string", "minLength": 1, "anyOf": [*narrow, widest]})


def _whole(raw: Any) -> Any:
    return int(raw) if isinstance(raw, float) and raw.is_integer() else raw


def _all_whole(raw: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(raw)
    except ValidationError:
        if isinstance(raw, list) and any(isinstance(one, float) for one in raw):
            return check([_whole(one) for one in raw])
        raise


Whole = Annotated[int, BeforeValidator(_whole)]
Id = Annotated[str, _bytes_to(MAX_TEXT_BYTES), _utf8(MAX_TEXT_BYTES, r"\u0000")]
Key = Annotated[
    str,
    _bytes_to(MAX_KEY_BYTES, lambda text: text and "\0" not in text, " without U+0000"),
    _utf8(MAX_KEY_BYTES, r"\u0001"),
]
Ids = Annotated[list[Id], Field(max_length=MAX_LIST, fail_fast=True)]
AliasName = Annotated[str, Field(min_length=1, max_length=64)]
TwoNames = Annotated[str, Field(pattern=r"^[^,]{1,64},[^,]{1,64}$")]


class SparseNumbers(Request):
    """A sparse vector: strictly increasing indices from 0, and a value for each."""

    indices: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_INDEX)]],
        Field(max_length=MAX_VECTOR, fail_fast=True),
        WrapValidator(_all_whole),
    ]
    values: list[float] = Field(max_length=MAX_VECTOR, fail_fast=True)

    @model_validator(mode="after")
    def _go_together(self) -> SparseNumbers:
        if len(self.indices) != len(self.values):
            raise ValueError(f"{len(self.indices)} indices for {len(self.values)} values")
        if any(after <= before for before, after in zip(self.indices, self.indices[1:], strict=False)):
            raise ValueError("indices are not strictly increasing")
        return self


Numbers = Annotated[
    Annotated[list[float], Field(min_length=1, max_length=MAX_VECTOR, fail_fast=True), Tag(DENSE)]
    | Annotated[SparseNumbers, Tag(SPARSE)],
    Discriminator(lambda raw: SPARSE if isinstance(raw, dict | SparseNumbers) else DENSE),
]
"""A vector: a list of numbers, or a sparse one."""


class Filter(Request):
    """Which objects may be in the answer; all parts given must hold."""

    include: Ids | None = Field(default=None, description="the only objects allowed")
    exclude: Ids = Field(default=[], description="objects left out")
    tags: Ids = Field(default=[], description="tags that each object must carry, all of them")


OBJECT = ("id", "x", "views")
"""The fields of a question that say which object is meant: one of them does."""


def _given(*names: str) -> JsonDict:
    return {"required": [*names], "properties": {name: {"not": {"type": "null"}} for name in names}}


_ONE_OBJECT: JsonDict = {"oneOf": [_given(name) for name in OBJECT]}


class GivenObject(Request):
    """An object, by id or by its vectors."""

    model_config = ConfigDict(json_schema_extra=_ONE_OBJECT)

    id: Id | None = Field(
        None, description=f"an object of the catalog; at most {MAX_TEXT_BYTES} bytes of UTF-8"
    )
    x: Numbers | None = Field(None, description='the vector of the view called "x"')
    views: Annotated[dict[Id, Numbers], Field(min_length=1, max_length=MAX_MAP_ENTRIES)] | None = Field(
        None, description="view name -> vector; of a query also the name of another model it is of"
    )

    @model_validator(mode="after")
    def _one_object(self) -> Self:
        given = [name for name in OBJECT if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of id, x, views; found {' and '.join(given) or 'none'}")
        return self


class Question(GivenObject):
    """One query: an object, by id or by its vectors, and how many of the nearest are wanted."""

    id: Id | None = Field(
        None,
        description="an object of the catalog; it is left out of its own answer; "
        f"at most {MAX_TEXT_BYTES} bytes of UTF-8",
    )
    k: Whole = Field(10, ge=1, description="most results")
    filter: Filter | None = None
    key: Key | None = Field(
        None,
        description="whose model answers, where one is learned per key; "
        f"at most {MAX_KEY_BYTES} bytes of UTF-8 without U+0000",
    )


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("expected more than spaces")
    return text


NonBlank = Annotated[
    str, AfterValidator(_not_blank), _bytes_to(MAX_TEXT_BYTES), _utf8(MAX_TEXT_BYTES, r"\u0021")
]
_SOURCE = (
    "who clicks, a user or a session, by any name; left out: who the token was given to, where it is of "
    "http.tokens. Where clicks decide, who sends many lists counts as others do"
)


class SimilarRequest(Question):
    """Body of POST /v1/similar, and the parameters of GET."""

    model_config = ConfigDict(json_schema_extra=_ONE_OBJECT | {"not": _given("alias", "interleave")})

    IN_ADDRESS: ClassVar[Mapping[str, bool]] = {
        "id": True,
        **dict.fromkeys(("k", "key", "alias", "interleave", "explore", "explain"), False),
    }

    alias: AliasName | None = Field(None, description="which model answers; the first followed if left out")
    interleave: TwoNames | None = Field(
        None, description="two models, such as `stable,latest`, that make the list together by a team draft"
    )
    explore: Annotated[int, Field(ge=0, le=1), BeforeValidator(_whole)] | None = Field(
        None, description="random objects in the list, 0 or 1; `interleaving.explore` if left out"
    )
    explain: bool = Field(
        False, description=f"tell why each hit has its score; k is then at most {EXPLAINED}"
    )
    log: bool = Field(
        False,
        description="keep this list as an impression, so that a click on it needs only POST /v1/clicks: the "
        "question is then by `id`, and its token one that may write",
    )
    source: NonBlank | None = Field(None, description=f"of the list that `log` keeps: {_SOURCE}")


class BatchRequest(Request):
    """Body of POST /v1/similar/batch: several queries, all answered by one model."""

    queries: list[Question] = Field(min_length=1, max_length=MAX_LIST, fail_fast=True)
    alias: AliasName | None = Field(None, description="which model answers; the first followed if left out")


class FoldRequest(Request):
    """Body of POST /v1/fold: what to ask an index of your own with."""

    queries: list[GivenObject] = Field(min_length=1, max_length=MAX_LIST, fail_fast=True)
    mode: Literal["folded", "embedded"] = Field(
        description="`folded`: for an index that holds the vectors as you gave them; `embedded`: for one "
        "that holds exported vectors, those of `models export` or /v1/embed"
    )
    alias: AliasName | None = Field(None, description="which model folds; the first followed if left out")


class EmbedRequest(Request):
    """Body of POST /v1/embed: what an index of your own is to hold, for queries that are `embedded`."""

    objects: list[GivenObject] = Field(min_length=1, max_length=MAX_LIST, fail_fast=True)
    alias: AliasName | None = Field(None, description="which model embeds; the first followed if left out")


def _each_once(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("an object is there twice")
    return names


ImpressionId = Annotated[
    str, _bytes_to(MAX_IMPRESSION_BYTES, str.strip), _utf8(MAX_IMPRESSION_BYTES, r"\u0021")
]
Shown = Annotated[
    list[NonBlank],
    Field(min_length=1, max_length=MAX_SHOWN, fail_fast=True, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_each_once),
]
Time = Annotated[int, Field(ge=0, le=MAX_TS), BeforeValidator(_whole)]
Chance = Annotated[float, Field(gt=0, le=1)]
_TIME = "Unix milliseconds; the server's clock if left out, which no visitor can set wrong"
_TOKEN = "the token for writing, where no header can be set"  # noqa: S105 - it says what the field is for


class _Several(Request):
    """Base of bodies that may be one of what they hold or a list of them, and the token."""

    @model_validator(mode="before")
    @classmethod
    def _one_or_several(cls, raw: Any) -> Any:
        name = next(iter(cls.model_fields))
        if isinstance(raw, list):
            return {name: raw}
        if isinstance(raw, dict) and name not in raw:
            one = dict(raw)
            token = {"token": one.pop("token")} if "token" in one else {}
            return {name: [one], **token}
        return raw


class ShownList(Request):
    """A list that a user was shown."""

    impression: ImpressionId = Field(
        description="its id, your own or that of /v1/similar: clicks name it, and a list that is sent twice "
        f"counts once; at most {MAX_IMPRESSION_BYTES} bytes of UTF-8"
    )
    query: NonBlank = Field(description="id of the query object, which the catalog has: a term, an object")
    shown: Shown = Field(description="ids of the objects, best place first")
    ts: Time | None = Field(None, description=_TIME)
    propensity: list[Chance] | None = Field(
        None,
        max_length=MAX_SHOWN,
        description="for each place, the probability in (0, 1] that the user looked at it",
    )
    source: NonBlank | None = Field(None, description=_SOURCE)
    key: Key | None = Field(None, description="whose model learns from it, where one is learned per key")

    @model_validator(mode="after")
    def _a_chance_each(self) -> Self:
        if self.propensity is not None and len(self.propensity) != len(self.shown):
            raise ValueError(f"propensity has {len(self.propensity)} numbers for {len(self.shown)} objects")
        return self


class ImpressionsRequest(_Several):
    """Body of POST /v1/impressions: one, a list, one per line (NDJSON), or a list under `impressions`."""

    impressions: list[ShownList] = Field(min_length=1, max_length=MAX_LIST, fail_fast=True)
    token: str | None = Field(None, max_length=200, description=_TOKEN)


class ClickedObject(Request):
    """A click on an object of a shown list."""

    impression: ImpressionId = Field(description="id of the list")
    object: NonBlank = Field(description="id of the object that was clicked")
    ts: Time | None = Field(None, description=_TIME)
    key: Key | None = Field(
        None,
        description="the key of the list, where lists of several keys may have this id; left out: any that"
        " the token may write for",
    )


class ClicksRequest(_Several):
    """Body of POST /v1/clicks: one, a list, one per line (NDJSON), or a list under `clicks`."""

    clicks: list[ClickedObject] = Field(min_length=1, max_length=MAX_LIST, fail_fast=True)
    token: str | None = Field(None, max_length=200, description=_TOKEN)


class Accepted(Answer):
    """Everything that was sent is on the disk, or on as many brokers as have to have it."""

    accepted: int


MOST_TEXTS = 2048
"""Texts, or lists of tokens, of one request, as at OpenAI."""
_Text = Annotated[str, Field(min_length=1)]
_Tokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, fail_fast=True)]


class EmbeddingsRequest(BaseModel):
    """Body of POST /v1/embeddings, as OpenAI has it; fields that are not named here go upstream too."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    model: str = Field(
        min_length=1,
        max_length=300,
        description="`NAME-query`, `NAME-query@ALIAS`: folded by the model of the alias, the first followed"
        " if left out; `NAME-doc`: as the upstream makes them. NAME is one of `embeddings.models`",
    )
    input: (
        _Text
        | Annotated[list[_Text], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
        | _Tokens
        | Annotated[list[_Tokens], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
    ) = Field(description="a text or several, or their tokens")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None

    @property
    def count(self) -> int:
        """How many vectors are asked for."""
        given = self.input
        return 1 if isinstance(given, str) or isinstance(given[0], int) else len(given)


class GivenDocument(Request):
    """A document to rank: its text, or the id of an object of the catalog."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_given("text"), _given("id")]})

    text: _Text | None = None
    id: Id | None = Field(None, description="an object of the catalog")

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.text is None) == (self.id is None):
            raise ValueError("expected a text or an id")
        return self

    @classmethod
    def of(cls, given: str | GivenDocument) -> GivenDocument:
        """A document that may be given as its text alone."""
        return cls(text=given, id=None) if isinstance(given, str) else given


class RerankRequest(Request):
    """Body of POST /v1/rerank, as Cohere has it."""

    model: str = Field(
        min_length=1, max_length=300, description="`NAME` or `NAME@ALIAS`; NAME is one of `embeddings.models`"
    )
    query: _Text
    documents: list[_Text | GivenDocument] = Field(min_length=1, max_length=MAX_LIST, fail_fast=True)
    top_n: Annotated[int, Field(ge=1), BeforeValidator(_whole)] | None = Field(
        None, description="most results; all if left out"
    )
    return_documents: bool = False


class RerankV2Request(RerankRequest):
    """Body of POST /v2/rerank: that of /v1/rerank, and two fields that Cohere's second version adds."""

    max_tokens_per_doc: Annotated[int, Field(ge=1), BeforeValidator(_whole)] | None = Field(
        None, description="taken and not used: what embeds the texts has a limit of its own"
    )
    priority: Annotated[int, Field(ge=0, le=999), BeforeValidator(_whole)] | None = Field(
        None, description="taken and not used: requests are answered in order"
    )


class ErrorBody(Answer):
    """What went wrong: `code` for programs, the others for people; `field` is the place in the request."""

    code: str
    message: str
    field: str | None
    remedy: str


class ErrorAnswer(Answer):
    """Every answer of status 400 and above."""

    error: ErrorBody


class AtVersion0(Answer):
    """What version 0 gives this object for the same query and filter."""

    score: float
    rank: int = Field(description="from 1, among all objects that the filter allows")


class Why(Answer):
    """Why a hit has its score."""

    views: list[ViewShare] | None = Field(
        description="they sum to the score; null for models whose score is no such sum (`oks`, `omks`)"
    )
    rest: float | None = Field(
        description="the score less that sum: rounding, and where steps are followed the first-order change"
        " of norms that the next form takes in"
    )
    version_0: AtVersion0
    clicks: HitClicks | None = Field(
        description="null while the topic is being read, which begins with the first question that asks why"
    )


class Hit(Answer):
    """One object of an answer."""

    id: str
    score: float
    team: str | None = Field(
        None,
        description="only in an interleaved list: the name of the model that put it here, whose score it is; "
        "null where both would have",
    )
    explored: bool | None = Field(
        None, description="only in a list with a random object: whether this is the one"
    )
    propensity: float | None = Field(
        None,
        description="only in a list with a random object: the probability that this object came to stand "
        "here, given the list before",
    )
    why: Why | None = Field(None, description="only where `explain` is asked")


_EXACT = "whether every object was looked at; false where approximate search may have missed some"
_RECALL = (
    "only where a graph found them: share of the exact results that is estimated to be among these, as "
    "measured for this model on the newest queries"
)


class Origin(Answer):
    """Which model answered, and how long it took."""

    version: str = Field(description='"12" at a version, "12+3400" that many records after it')
    base: int = Field(description="the newest version at or before the model's state")
    line: str | None = Field(
        description="the line of history that these numbers are of: another one after a checkpoint folder "
        "was put back from a copy or emptied. Null for versions from before there were lines"
    )
    records: int = Field(description="records applied since version 0")
    formed: int = Field(
        description="records at which the serving form and the norms of objects were computed; equal to "
        "`records`, except where steps are followed (latest): from here to there the form is carried over"
    )
    watermark: int | None = Field(description="newest event time learned, Unix milliseconds")
    alias: str
    took_ms: float = Field(description="from the parsed request to the answer, waiting included")


_OF_INDEX = "how the store of [index] took part; only where one is configured"

_ORDERED_BY = (
    "whose scores these are; only of a version with an order of its own. `order`: the arm that clicks chose "
    "for lists, and a share of your own ranking. It scores what `filter.include` names, and whatever a "
    "version answers that is not shown to search better: the first objects of your own ranking, in order. "
    "Behind these your ranking stays as it is, and a score is the last one of these, less what its own score "
    "is lower by. `form`: the serving form, or your own ranking where such a version leaves that as it is"
)

_BY_KEY = "which model answered; only where the question named a key"


class ListModel(Answer):
    """One of the models that made a list."""

    alias: str
    version: str = Field(description="as in the answer itself, which is about the first of them")
    base: int
    line: str | None
    records: int


_BY_CHANCE = "only in an interleaved list or one with a random object: "


class SimilarAnswer(Origin):
    """Nearest objects, best first; ties by the catalog's order."""

    results: list[Hit]
    exact: bool = Field(description=_EXACT)
    recall: float | None = Field(None, description=_RECALL)
    ordered_by: OrderedBy | None = Field(None, description=_ORDERED_BY)
    key: ByKey | None = Field(None, description=_BY_KEY)
    index: OfIndex | None = Field(None, description=_OF_INDEX)
    impression: str | None = Field(
        None,
        description="only in a list that was made by chance, or is kept by `log`: its id, signed where "
        "`interleaving.key` is set. Send clicks to /v1/clicks under it; or log them, as `id` of an "
        "impression or `query_id` of UBI, with all objects in this order",
    )
    logged: bool | None = Field(
        None,
        description="only where `log` is asked: whether the list is kept; false where there is nothing to "
        "show or it could not be written, which metrics count",
    )
    models: list[ListModel] | None = Field(
        None, description=_BY_CHANCE + "what made it, in the order of the names"
    )
    tie: bool | None = Field(
        None,
        description="only in an interleaved list: true where it has no teams and says nothing of the models, "
        "since both are one and the same or put the same objects into the same places",
    )


class BatchResult(Answer):
    """One query's results, or why it has none."""

    results: list[Hit] | None = None
    exact: bool | None = Field(None, description=_EXACT)
    recall: float | None = Field(None, description=_RECALL)
    ordered_by: OrderedBy | None = Field(None, description=_ORDERED_BY)
    key: ByKey | None = Field(None, description=_BY_KEY)
    index: OfIndex | None = Field(None, description=_OF_INDEX)
    error: ErrorBody | None = None


class BatchAnswer(Origin):
    """One entry per query, in their order."""

    answers: list[BatchResult]


class SparseNumbersMade(Answer):
    """A vector of a sparse space: where it is not 0."""

    indices: list[int]
    values: list[float]


class MadeVector(Answer):
    """One object's vector, or why it has none."""

    vector: list[float] | SparseNumbersMade | None = None
    error: ErrorBody | None = None


_SIMILARITY = (
    "what of a query's vector and a document's is the score of /v1/similar: their `inner_product`, or minus "
    "the square of their distance (`squared_euclidean`)"
)


class FoldAnswer(Origin):
    """One vector per query, in their order. Vectors of one version go with documents of the same one."""

    mode: Literal["folded", "embedded"]
    similarity: Literal["inner_product", "squared_euclidean"] = Field(
        description=_SIMILARITY + "; of `folded` queries up to what is each object's own, such as its norm"
    )
    dim: int
    views: list[FoldedView] = Field(description="of a folded vector, side by side; [] where it is embedded")
    rerank: int | None = Field(
        None,
        description="only of a version that is not shown to search better, and puts the first objects of "
        "your own ranking in order: vectors are those of that ranking; ask /v1/similar with so many of its "
        "first as `filter.include`",
    )
    vectors: list[MadeVector]


class EmbedAnswer(Origin):
    """One vector per object, in their order."""

    similarity: Literal["inner_product", "squared_euclidean"] = Field(description=_SIMILARITY)
    symmetric: bool = Field(
        description="whether an object has the same vector as a query; else ask with those of /v1/fold"
    )
    dim: int
    vectors: list[MadeVector]


class TextEmbedding(Answer):
    """One text's vector."""

    model_config = ConfigDict(extra="allow")

    object: str = "embedding"
    index: int
    embedding: list[float] | str = Field(description="numbers, or base64 of them as float32, low byte first")


class EmbeddingsAnswer(Answer):
    """One vector per text, and `usage`; an answer of documents is the upstream's, byte for byte."""

    model_config = ConfigDict(extra="allow")

    object: str = "list"
    data: list[TextEmbedding]
    model: str


class RankedDocument(Answer):
    """A document in its place."""

    index: int = Field(description="its place in the request, from 0")
    relevance_score: float = Field(description="the score that /v1/similar gives it in a `filter.include`")
    document: dict[str, str] | None = Field(None, description="only with `return_documents`")


class RerankAnswer(Answer):
    """Documents, best first; equal scores in the order of the request."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: Any = Field(None, description="the upstream's, of embedding the texts")
    meta: dict[str, Any] = Field(
        description="`api_version`, and `ordered_by`: `order` where the version has an order of its own for "
        "lists, which is then what scores, else `form`"
    )


class ListedModel(Answer):
    """A name that /v1/embeddings or /v1/rerank takes as `model`."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="when the server started, Unix seconds")
    owned_by: str = "tripletd"


class ListedModels(Answer):
    """The names that may be asked for; none where names are the upstream's own."""

    object: Literal["list"] = "list"
    data: list[ListedModel]


class ServedAlias(Answer):
    """What one alias answers with now; nulls and `why` while it answers nothing."""

    alias: str
    version: str | None
    base: int | None
    line: str | None
    records: int | None
    watermark: int | None
    since: float | None = Field(description="Unix seconds of the swap that brought it")
    note: str = Field(
        "", description="set where what answers was not shown to be better, or has an order of its own"
    )
    why: str = ""


class KeptVersion(Answer):
    """One version of the store with its names and measures."""

    model_config = ConfigDict(extra="allow")

    version: int


class Versions(Answer):
    """Answer of GET /v1/versions."""

    aliases: list[ServedAlias]
    versions: list[KeptVersion]


VersionField = Annotated[
    Annotated[int, Field(ge=0), BeforeValidator(_whole), Tag(NUMBER)] | Annotated[AliasName, Tag(NAME)],
    Discriminator(lambda raw: NAME if isinstance(raw, str) else NUMBER),
]
"""A version by its number, or by a name such as best."""


class _Moving(Request):
    alias: AliasName = "stable"
    reason: str = Field("asked for over HTTP", max_length=500)
    dry_run: bool = False


class PromoteRequest(_Moving):
    """Body of POST /v1/models/promote."""

    version: VersionField = Field(description="a number, or a name such as best")


class RollbackRequest(_Moving):
    """Body of POST /v1/models/rollback."""

    to: VersionField | None = Field(None, description="where to; left out: the version before")


class PinRequest(_Moving):
    """Body of POST /v1/models/pin: a name for a version that is to be kept."""

    alias: AliasName
    version: VersionField | None = Field(description="null takes the name away")


class GcRequest(Request):
    """Body of POST /v1/models/gc."""

    dry_run: bool = False


class Moved(Answer):
    """A name moved, or what would be moved (dry run: `entry` is null)."""

    kind: str
    alias: str
    before: int | None
    after: int | None
    by: str
    reason: str
    entry: int | None = Field(description="number of the ledger entry written")
    notes: list[str] = Field(default_factory=list, description="what else to know")


class Collected(Answer):
    """Versions deleted, or what would be; `size` in bytes; `kept`: version -> why."""

    gone: list[int]
    size: int
    kept: dict[int, list[str]]
    dry_run: bool
