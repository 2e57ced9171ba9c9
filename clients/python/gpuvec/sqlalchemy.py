"""The type IDSET for SQLAlchemy, with its operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Boolean, Float, cast, func
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import Text, UserDefinedType

from .idset import IdSet


class IDSET(UserDefinedType):
    """A column of sets; values are IdSet, and whatever makes one.

    Distances order an index scan: ``order_by(Doc.tokens.jaccard_distance({3, 17})).limit(10)``.
    """

    cache_ok = True

    def get_col_spec(self, **_kw: Any) -> str:
        """Return the type's name."""
        return "idset"

    def bind_processor(self, _dialect: Any) -> Callable[[Any], str | None]:
        """Send sets as text, which every driver can."""

        def process(value: Any) -> str | None:
            if value is None or isinstance(value, str):
                return value
            return IdSet(value).to_text()

        return process

    def literal_processor(self, _dialect: Any) -> Callable[[Any], str]:
        """Write sets into a statement."""

        def process(value: Any) -> str:
            text = value if isinstance(value, str) else IdSet(value).to_text()
            return "'" + text.replace("'", "''") + "'"

        return process

    def result_processor(self, _dialect: Any, _coltype: Any) -> Callable[[Any], IdSet | None]:
        """Read sets that come as text, or as IdSet where the driver has an adapter."""

        def process(value: Any) -> IdSet | None:
            return IdSet.from_text(value) if isinstance(value, str) else value

        return process

    # SQLAlchemy's name for it
    class comparator_factory(UserDefinedType.Comparator):  # noqa: N801
        """Operators of the type; the other side is a set, or a column of sets."""

        def braun_blanquet_distance(self, other: Any) -> Any:
            """Write <->."""
            return self.op("<->", return_type=Float)(other)

        def jaccard_distance(self, other: Any) -> Any:
            """Write <%>."""
            return self.op("<%>", return_type=Float)(other)

        def cosine_distance(self, other: Any) -> Any:
            """Write <=>."""
            return self.op("<=>", return_type=Float)(other)

        def negative_intersection(self, other: Any) -> Any:
            """Write <#>."""
            return self.op("<#>", return_type=Float)(other)

        def hamming_distance(self, other: Any) -> Any:
            """Write <~>."""
            return self.op("<~>", return_type=Float)(other)

        def overlaps(self, other: Any) -> Any:
            """Write &&: have they an id in common?"""  # noqa: D400
            return self.op("&&", return_type=Boolean)(other)

        def contains(self, other: Any, **_kw: Any) -> Any:
            """Write @>: are all of the other's ids in this one?"""  # noqa: D400
            return self.op("@>", return_type=Boolean)(other)

        def contained_by(self, other: Any) -> Any:
            """Write <@: are all of these ids in the other one?"""  # noqa: D400
            return self.op("<@", return_type=Boolean)(other)

        def reaches(self, other: Any, min_score: float, measure: str = "braun_blanquet") -> Any:
            """Write <<->>: is the similarity to the other one at least that?"""  # noqa: D400
            query = cast(IdSet(other).to_text(), IDSET)
            right = func.idset_threshold(query, min_score, cast(measure, Text))
            return self.op("<<->>", return_type=Boolean)(right)


ischema_names["idset"] = IDSET
