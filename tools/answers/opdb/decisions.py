"""Differences from PyTorch's operator database on purpose, each with its reason.

Not here: how a difference is found (`judge`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.answers.opdb.call import Call


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


RANDOM: Final = _words("""
    bernoulli cauchy empty empty_like exponential geometric log_normal multinomial new_empty normal rand
    rand_like randn randn_like uniform nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
""")
"""Functions whose values are random or undefined: shapes and dtypes are compared."""


def _vectors(outs: list[Any]) -> list[Any]:
    """Return |U|, S, |V| and products of vectors: singular vectors are unique up to signs."""
    return [o.abs() for o in outs]


INVARIANT: Final[dict[str, Callable[[list[Any]], list[Any]]]] = {
    "svd": _vectors,
    "linalg.svd": _vectors,
    "linalg.eigh": lambda outs: [outs[0], outs[1].abs()],
}
"""Functions whose results are defined up to signs, and what of the results is compared."""

TIES: Final = _words("argmax argmin argsort kthvalue max median min mode nanmedian sort topk")
"""Functions that name places, of which PyTorch promises none where several elements are equal."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Differences of `kinds` of entries that match, where `text` is found in the call or the difference."""

    entries: str
    kinds: str
    text: str
    why: str


DECISIONS: Final[tuple[Decision, ...]] = (
    Decision(
        "cholesky_(inverse|solve)",
        "gradient",
        "",
        "one triangle of the factor is read, as the documentation of both says, so the gradient of the "
        "other is 0; PyTorch gives that of a function of the whole",
    ),
)


def reason(call: Call, kind: str, text: str) -> str:
    """Return why a difference of a class is meant, or "" if it is not."""
    for d in DECISIONS:
        if (
            kind in d.kinds.split(", ")
            and re.fullmatch(d.entries, call.entry)
            and re.search(d.text, f"{call} {text}")
        ):
            return d.why
    return ""
