"""Parts that bit layouts and byte layouts share: violations, patch sites, declared types.

Not here: the fields (`bitfield`), their fast readers (`readers`). Next: `bitstruct` and `bytestruct`, the two
kinds of layouts.
"""

from __future__ import annotations

import enum
import sys
import typing
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hcq.errors import UsageError


class _Missing(enum.Enum):
    MISSING = enum.auto()


MISSING: Final = _Missing.MISSING
"""Default of a field that must be given."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule of a layout that a decoded value breaks."""

    struct: str
    field: str
    value: int
    rule: str

    def __str__(self) -> str:
        return f"{self.struct}.{self.field} = {self.value:#x}: {self.rule}"


@dataclass(frozen=True, slots=True)
class Site:
    """The position of a piece of a field.

    Bits [lo, lo + width) of word `word` hold bits [shift, shift + width) of the value.
    """

    word: int
    lo: int
    width: int
    shift: int


class RawLayout:
    """The base of both kinds of layouts: `_raw` is all that a value consists of."""

    SIZE: ClassVar[int] = 0
    """Number of bytes."""
    SOURCE: ClassVar[str] = ""
    """Where the facts come from."""

    _RULES: ClassVar[Any]
    """The class of `_rules`: the fast half of `check`."""
    _rules: ClassVar[Any] = None
    """Made at the first check."""

    __slots__ = ("_raw",)
    _raw: Any

    def check(self) -> list[Violation]:
        """Return the broken rules: of fixed bits, enum values, nested layouts, and what no field declares."""
        rules = self._rules
        if rules is None:
            type(self)._rules = rules = self._RULES(type(self))  # noqa: SLF001 - its own class
        return [] if rules.hold(self._raw) else self._broken()

    def _broken(self) -> list[Violation]:
        raise NotImplementedError

    @classmethod
    def _table(cls, title: str, *rows: tuple[object, ...]) -> str:
        """Return a reference table as Markdown; the first row has the names of the columns."""
        from inspect import cleandoc  # noqa: PLC0415 - slow to import, and only the reference needs it

        head = [f"### {cls.__name__}{title}", "", cleandoc(cls.__doc__ or ""), ""]
        head += [f"Source: {cls.SOURCE}", ""] if cls.SOURCE else []
        first, *rest = (f"| {' | '.join(map(str, row))} |" for row in rows)
        return "\n".join([*head, first, "|" + "--|" * len(rows[0]), *rest])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, RawLayout) and other._raw == self._raw

    def __hash__(self) -> int:
        return hash((type(self), self._raw))


def field_type(base: type[RawLayout], owner: type[RawLayout], name: str, *, many: bool) -> type[Any]:
    """Return the Python type of a field from its annotation, `int` without one; of `tuple[T, ...]` the T.

    `many`: the field has several elements. Raises `TypeError` for a type that a field cannot have, and for a
    name that belongs to every layout of the kind `base`.
    """
    if hasattr(base, name):
        raise TypeError(f"{owner.__name__}.{name}: the name belongs to every layout; choose another")
    annotation: Any = owner.__annotations__.get(name, int)
    if isinstance(annotation, str):
        scope = vars(sys.modules[owner.__module__])
        try:
            annotation = eval(annotation, scope)  # noqa: S307 - the text is the layout's own source
        except NameError as error:
            raise TypeError(
                f"{owner.__name__}: types of fields must be defined at module level ({error})"
            ) from None
    if many:
        if typing.get_origin(annotation) is not tuple:
            raise TypeError(
                f"{owner.__name__}: a field with count= is annotated tuple[T, ...], not {annotation!r}"
            )
        annotation = typing.get_args(annotation)[0]
    if not isinstance(annotation, type):
        raise TypeError(f"{owner.__name__}: {annotation!r} is no type that a field can have")
    if issubclass(annotation, enum.Enum) and not issubclass(annotation, int):
        raise TypeError(f"{owner.__name__}: {annotation.__name__} must be an IntEnum or IntFlag")
    return annotation


def typed(kind: type[Any], raw: int) -> Any:
    """Return `raw` as `kind`; a number that is no member of an enum stays a number."""
    if kind is int:
        return raw
    if kind is bool:
        return bool(raw) if raw in (0, 1) else raw
    try:
        return kind(raw)
    except ValueError:
        return raw


def unknown(kind: type[Any], raw: int) -> str | None:
    """Return the reason why `raw` is no legal value of `kind`, or None."""
    if kind is bool and raw not in (0, 1):
        return "not a bool"
    if issubclass(kind, enum.Flag):
        left = raw & ~sum(member.value for member in kind)
        return f"bits {left:#x} are not in {kind.__name__}" if left else None
    if issubclass(kind, enum.Enum) and raw not in kind._value2member_map_:
        return f"not a {kind.__name__}"
    return None


def show(value: object) -> str:
    """Return `value` as text for a dump: enum members by name, large numbers in hexadecimal."""
    if isinstance(value, enum.Enum):
        return (
            f"{type(value).__name__}.{value.name}"
            if value.name
            else f"{type(value).__name__}({int(value.value):#x})"
        )
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 255:
        return f"{value:#x}"
    if isinstance(value, tuple):
        return f"({', '.join(map(show, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def padded(
    struct: str, field: str, values: typing.Sequence[Any], count: int, zero: Any = 0
) -> tuple[Any, ...]:
    """Return `values` extended to `count` with `zero`. Raises `UsageError` for more than `count`."""
    if len(values) > count:
        raise UsageError(f"{struct}.{field} has {count} elements, {len(values)} were given")
    return (*values, *(zero,) * (count - len(values)))


def named(
    struct: type[object], fields: typing.Mapping[str, object], given: typing.Mapping[str, object]
) -> None:
    """Raise `TypeError` for a name in `given` that is no field."""
    wrong = [name for name in given if name not in fields]
    if wrong:
        raise TypeError(f"{struct.__name__} has no field {', '.join(wrong)}; it has: {', '.join(fields)}")
