"""Differences from PyTorch's operator database on purpose, each with its reason.

Not here: how a difference is found (`judge`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracles.opdb.call import Call


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


RANDOM: Final = _words("""
    bernoulli cauchy empty empty_like exponential geometric log_normal multinomial new_empty normal rand
    rand_like randint_like randn randn_like uniform nn.functional.dropout nn.functional.dropout2d
    nn.functional.dropout3d new_empty_strided
""")
"""Functions whose values are random or undefined: shapes and dtypes are compared."""


def _vectors(outs: list[Any]) -> list[Any]:
    """Return |U|, S, |V| and products of vectors: singular vectors are unique up to signs."""
    return [o.abs() for o in outs]


def is_random(call: Call) -> bool:
    """Return whether the values of a call's results are random or undefined."""
    return call.name in RANDOM or bool(call.names.get("dropout_p"))


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


_RAISES: Final = "only PyTorch raises"
DECISIONS: Final[tuple[Decision, ...]] = (
    Decision(
        "cholesky_(inverse|solve)",
        "gradient",
        "",
        "one triangle of the factor is read, as the documentation of both says, so the gradient of the "
        "other is 0; PyTorch gives that of a function of the whole",
    ),
    Decision(
        "linalg.pinv:hermitian",
        "gradient",
        "",
        "the samples are not symmetric, which the documentation requires; one half is read, and PyTorch's "
        "gradient is that of the whole",
    ),
    Decision("as_strided_scatter", "gradient", "",
             "elements that are not written have their gradient, and the others none"),
    Decision("linalg.norm:subgradients_at_zero", "gradient", "nuc",
             "singular vectors of a matrix of zeros are zeros here"),
    Decision("nn.functional.softmin:with_dtype", "value", r"\[uint8\]",
             "numbers are negated after they are converted; before, PyTorch's wrap"),
    Decision("(special.)?polygamma:.*", "value", r"\[(int8|int16|bfloat16)\].* inf, PyTorch",
             "at a pole the value is infinite; PyTorch gives a great one"),
    Decision("matrix_exp", "value", r"\[float16\].*PyTorch nan", "halves are computed in float32"),
    Decision("nn.functional.interpolate:bi.*", "value", r"\[uint8\]",
             "weights are floats; PyTorch's have 15 bits, so that some values differ by 1"),
    Decision("nn.functional.(rrelu|(feature_)?alpha_dropout.*)", "value", "training=True", "random values"),
    Decision("einsum", "dtype", r"\[u?int\d+\].*PyTorch int64",
             "PyTorch sums an operand of some formulas before the product, which gives int64"),
    Decision("digamma", "gradient", "inf, PyTorch 1.*e",
             "at a pole the gradient is infinite, as its limit is; PyTorch gives 1e32"),
    Decision(
        "matmul|mm|__rmatmul__|einsum|tensordot|nn.functional.linear",
        "dtype",
        r"\[bool\]",
        "products of bools count (int32), as `matmul` documents; PyTorch has only those of no elements, and "
        "elementwise ones by `einsum`",
    ),
    Decision("softmax|log_softmax|nn.functional.(softmin|adaptive_avg_pool1d)|rand_like|randn_like", "dtype",
             r"\[(int64|bool)\].*float32",
             "integers and bools give float32; PyTorch refuses them unless there are no elements"),
    Decision(
        "linalg.solve",
        "shape",
        "",
        "the right side is a vector if it has one axis, as in the array API standard; PyTorch takes (n, m) "
        "beside (n, m, m) as n vectors",
    ),
    Decision(
        ".*",
        _RAISES,
        r"\[(int64|bool|bfloat16)\].*(not implemented for|floating point|could not infer output dtype|"
        r"does not support bool|bool tensors? is not supported|can't be cast to the desired|derivative|"
        r"expected m1 and m2|only support|[Bb]ool inputs|must be (a )?float|same dtype|dtype)",
        "functions of floats take integers and bools as if cast, and those of numbers bools, as their "
        "documentation here says",
    ),
    Decision("mean", _RAISES, "could not infer output dtype",
             "the mean of integers is float32, as documented"),
    Decision(".*", _RAISES, "must be Tensor, not (int|float)",
             "operators take numbers in place of the second tensor"),
    Decision("arange", _RAISES, "inconsistent with step sign",
             "a range that cannot reach its end is empty, as the array API standard has it"),
    Decision("nn.functional.conv[123]d", _RAISES, "bias type",
             "a bias of another dtype promotes, as the operands of all functions do"),
    Decision("nn.functional.(adaptive_)?(avg|max)_pool[123]d", _RAISES,
             "Input dimension|Expected [23]D|positive length|non-batch dimensions",
             "pools take any number of leading axes, of any size"),
    Decision("masked_fill", _RAISES, "0-dimensional value",
             "a value broadcasts as the operands of other functions do"),
    Decision("linalg.cross", _RAISES, "same number of dimensions",
             "the array API standard broadcasts the other axes"),
)  # fmt: skip


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
