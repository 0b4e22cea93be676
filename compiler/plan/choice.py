"""A choice: the few numbers from which a planner makes one plan of a kernel, as data with a text form.

A plan holds nodes of its kernel; a choice holds numbers of ranges and sizes, so that it can be stored, sent
to another process, and changed by one step. `tiling`, `contraction`, `shared_product`, `online_product`,
`transposes`, `phases` and `winograd` each make plans of one class of choices; the zeros and empty tuples of
a choice leave a factor to the planner's estimate.

Not here: plans (`nest.loop_nest`), which choices a kernel has (`frontend.tuning.space`). Next: `proposers`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Numbers = tuple[tuple[int, int], ...]
Copied = Literal["no", "all", "block", "window"]
Form = Literal["plain", "merged", "split", "words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitChoice:
    """Vectors (or threads) along one range and unrolled copies of blocks: a plan of `tiling`."""

    form: Form = "plain"
    """The kernel as it is, with merged masked ranges, with divided ranges, or with sums over words
    (`proposal.KernelForm`)."""
    vector: int = -1
    """The number of the output range along which vectors are; -1: none."""
    upcast: Numbers = ()
    """(number of an output range, its unrolled copies), by number."""
    sums: Numbers = ()
    """For each family of reductions (number of the range along which its vectors are, or -1; unrolled
    rounds); empty: estimated."""
    order: tuple[int, ...] = ()
    """Numbers of the output ranges, the outermost loop first; empty: estimated."""
    threads: int = 0
    """The most threads of a workgroup; 0: estimated."""
    groups: int = 0
    """The workgroups at most; 0: estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductChoice:
    """A register tile, panels and pieces of a sum of products: a plan of `contraction`."""

    form: Form = "plain"
    role: int = 0
    """The number of the choice of rows and columns among `roles.candidates`."""
    rows: int = 1
    vectors: int = 1
    """The register tile: rows, and vectors of columns. 0 rows: all factors but `role` and `inside` are
    estimated."""
    staged: bool = False
    """Whether the streamed operand is copied to panels."""
    copied: Copied = "no"
    """Whether the broadcast operand is copied: not, as much as the loops outside allow, a block at a time, or
    as a window (`windows`)."""
    piece: int = 0
    """The most products of a piece of the sum; 0: the sum is not cut."""
    inside: bool = False
    """Whether products with the border of a picture are left out (`nest.convolution_borders`)."""
    groups: int = 0
    """The workgroups at most; 0: estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedChoice:
    """Tiles in shared memory: a plan of `shared_product`."""

    matrix: bool = False
    """Whether a matrix operation is used."""
    rows: int = 1
    columns: int = 1
    """Threads along rows and columns; with a matrix operation, warps."""
    high: int = 1
    wide: int = 1
    """Rows and columns of a thread; with a matrix operation, of a warp in operations."""
    words: int = 16
    """Words along the sum in a tile."""
    depth: int = 1
    """Tiles in flight; from 2 on they are copied asynchronously."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineChoice:
    """A softmax between two products in one loop over the keys: a plan of `online_product`."""

    warps: int = 4
    """Warps along the rows."""
    high: int = 1
    """Operations of a warp along the rows."""
    keys: int = 64
    """Keys of a block."""
    depth: int = 1
    """Tiles of keys and of values in flight; from 2 on they are copied asynchronously."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedChoice:
    """Tiles in shared memory of a kernel that transposes: the one plan of `transposes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsChoice:
    """Parts one after the other, of a chain or one for each remainder: the one plan of `phases`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradChoice:
    """Products of transformed tiles of a convolution: the one plan of `winograd`."""


Choice: TypeAlias = (
    SplitChoice | ProductChoice | StagedChoice | OnlineChoice | TurnedChoice | PartsChoice | WinogradChoice
)
_KINDS: Mapping[str, type[Choice]] = {
    "split": SplitChoice, "product": ProductChoice, "staged": StagedChoice, "online": OnlineChoice,
    "turned": TurnedChoice, "parts": PartsChoice, "winograd": WinogradChoice,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_text(choice: Choice) -> str:
    """Return the canonical text of a choice: JSON, equal for equal choices."""
    return json.dumps([_NAMES[type(choice)], asdict(choice)], sort_keys=True, separators=(",", ":"))


def from_text(text: str) -> Choice:
    """Return the choice of a text of `to_text`. Raises `UsageError` for any other text."""
    try:
        name, values = json.loads(text)
        kind = _KINDS[name]
        known = {field.name for field in fields(kind)}
        given: dict[str, Any] = {key: _tuples(value) for key, value in values.items()}
        if set(given) == known:
            return kind(**given)
        error: Exception = ValueError(f"wanted the fields {sorted(known)}, saw {sorted(given)}")
    except (ValueError, KeyError, TypeError) as found:
        error = found
    raise UsageError(f"wanted the text of a choice of a plan, saw {text[:200]!r}: {error}") from error


def _tuples(value: object) -> object:
    return tuple([_tuples(v) for v in value]) if isinstance(value, list) else value


def brief(choice: Choice) -> str:
    """Return a choice as a few words for people: its fields that differ from the defaults."""
    name = _NAMES[type(choice)]
    words = [
        f"{field.name}={getattr(choice, field.name)}"
        for field in fields(choice)
        if getattr(choice, field.name) != field.default
    ]
    return " ".join([name, *words]).replace(", ", ",")
