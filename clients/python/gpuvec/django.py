"""A field of sets for Django, with lookups, distances, the index and the extension."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.indexes import PostgresIndex
from django.contrib.postgres.operations import CreateExtension
from django.db.models import BooleanField, Field, FloatField, Func, Value

from .idset import IdSet


class GpuvecExtension(CreateExtension):
    """The operation of a migration that creates the extension."""

    def __init__(self) -> None:
        self.name = "gpuvec"


class IdSetField(Field):
    """A column of sets; values are IdSet, and whatever makes one."""

    description = "Set of ids"
    empty_strings_allowed = False

    def db_type(self, connection: Any) -> str:  # noqa: ARG002
        """Return the type's name."""
        return "idset"

    def from_db_value(self, value: Any, _expression: Any, _connection: Any) -> IdSet | None:
        """Read sets that come as text, or as IdSet where the driver has an adapter."""
        return IdSet.from_text(value) if isinstance(value, str) else value

    def to_python(self, value: Any) -> IdSet | None:
        """Make a set of what was given."""
        if value is None or isinstance(value, IdSet):
            return value
        return IdSet.from_text(value) if isinstance(value, str) else IdSet(value)

    def get_prep_value(self, value: Any) -> Any:
        """Return the literal."""
        ids = self.to_python(value)
        return None if ids is None else ids.to_text()

    def value_to_string(self, obj: Any) -> str:
        """Write the value for a fixture."""
        return str(self.get_prep_value(self.value_from_object(obj)))


class _Operator(Func):
    """An operator between a field and a set; Django writes % as %%."""

    template = "(%(expressions)s)"

    def __init__(self, field: Any, ids: Any, **extra: Any) -> None:
        if not hasattr(ids, "resolve_expression"):
            ids = Value(ids, output_field=IdSetField())
        super().__init__(field, _Cast(ids), **extra)


class _Cast(Func):
    template = "%(expressions)s::idset"
    output_field = IdSetField()


class BraunBlanquetDistance(_Operator):
    """``tokens <-> set``."""

    arg_joiner = " <-> "
    output_field = FloatField()


class JaccardDistance(_Operator):
    """``tokens <%> set``."""

    arg_joiner = " <%%> "
    output_field = FloatField()


class CosineDistance(_Operator):
    """``tokens <=> set``."""

    arg_joiner = " <=> "
    output_field = FloatField()


class NegativeIntersection(_Operator):
    """``tokens <#> set``."""

    arg_joiner = " <#> "
    output_field = FloatField()


class HammingDistance(_Operator):
    """``tokens <~> set``."""

    arg_joiner = " <~> "
    output_field = FloatField()


class Reaches(Func):
    """``tokens <<->> (set, min_score, measure)``, for filter()."""

    template = "(%(expressions)s)"
    arg_joiner = " <<->> "
    output_field = BooleanField()

    def __init__(self, field: Any, ids: Any, min_score: float, measure: str = "braun_blanquet",
                 **extra: Any) -> None:
        right = Func(_Cast(Value(ids, output_field=IdSetField())), Value(float(min_score)),
                     Value(measure), function="idset_threshold")
        super().__init__(field, right, **extra)


class _Lookup:
    """An operator of the type as a lookup: ``filter(tokens__contains={3})``."""

    operator = ""

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        """Write the operator."""
        left, left_parameters = self.process_lhs(compiler, connection)  # type: ignore[attr-defined]
        right, parameters = self.process_rhs(compiler, connection)  # type: ignore[attr-defined]
        return f"{left} {self.operator} {right}::idset", (*left_parameters, *parameters)


def _lookup(name: str, operator: str) -> None:
    from django.db.models import Lookup  # noqa: PLC0415

    members = {"lookup_name": name, "operator": operator}
    IdSetField.register_lookup(type(name, (_Lookup, Lookup), members))


_lookup("overlap", "&&")
_lookup("contains", "@>")
_lookup("contained_by", "<@")


class GpuvecIndex(PostgresIndex):
    """``CREATE INDEX ... USING gpuvec``; fields behind the first are filter columns."""

    suffix = "gpuvec"
