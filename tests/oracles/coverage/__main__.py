"""Write docs/coverage.md: `python -m tests.oracles.coverage`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import frontend
from frontend import Tensor
from frontend import array_api as xp
from frontend.methods import METHODS
from tests.oracles.expressions import EXPRESSIONS
from tests.oracles.gradients.cases import CASES
from tests.oracles.opdb import archive
from tools.arguments import command

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE: Final = Path(__file__).parent
OUT: Final = HERE.parents[2] / "docs" / "coverage.md"
DIFFERS: Final = {
    "dropout": "outside a layer it is active unless `Tensor.train(False)` surrounds it",
    "unique": "always sorted",
    "where": "`condition.where(a, b)`; of a tensor that is not bool also `x.where(condition, b)`",
    "data": "a method, which returns the bytes as tinygrad's does",
    "device": "the name, a str with `type` and `index`",
    "is_contiguous": "True of every tensor",
    "stride": "that of the row-major order, of views, too",
    "as_strided": "no view, and a view is refused, but for its first element",
    "as_strided_": "of a view it is refused",
    "as_strided_scatter": "of a view it is refused",
    "pin_memory": "the tensor itself",
    "retain_grad": "sets requires_grad",
    "nbytes": "a method, as tinygrad's",
    "sort": "always stable",
    "argsort": "always stable",
    "topk": "always in order",
    "nonzero": "`size=` gives a known shape",
    "size": "a tuple",
    "type": "names of dtypes are this project's",
    "round": "the argument `decimals` may also be given by position",
}
OF_TINYGRAD: Final = {
    "dropout": DIFFERS["dropout"],
    "max": "along an axis it is PyTorch's pair of values and indices; `amax` gives values",
    "min": "along an axis it is PyTorch's pair of values and indices; `amin` gives values",
}
"""What differs from tinygrad, besides indices, which are int32 there."""
NAMED: Final = (
    ("igamma igamma_ igammac igammac_", "no series of one length for all arguments"),
    ("eig symeig lstsq", "removed in PyTorch, too"),
    ("geqrf ormqr", "LAPACK's packed factors; `qr`, `lu` and `orgqr` are there"),
    ("smm sspaddmm indices values", "no sparse tensors"),
    ("to_padded_tensor", "no nested tensors"),
    ("qscheme", "no quantised tensors"),
    (("as_subclass hash_tensor index module_load name record_stream reinforce slice_inverse"),
     "of PyTorch's own machinery"),
)  # fmt: skip
"""(names, why these methods are missing)."""
REASONS: Final = (
    ("sparse crow ccol col_indices row_indices coalesce to_dense to_mkldnn dense_dim", "no sparse tensors"),
    ("quant q_scale q_zero q_per int_repr", "no quantised tensors"),
    ("conj complex real imag H angle cfloat cdouble chalf adjoint", "no complex numbers"),
    ("cuda xpu hpu ipu npu mps mtia vulkan xla meta pin_ pinned share storage data_ptr dlpack blob url",
     "devices, memory and files are this project's own"),
    ("names rename align", "no named axes"),
    ("is_ hook retain grad_fn grad_dtype output_nr leaf version layout stride set_ resize nested",
     "about PyTorch's own memory layout and graph"),
    ("fft istft stft", "no Fourier transforms"),
)  # fmt: skip
"""(parts of names, why methods with such a name are missing)."""


def reason(name: str) -> str:
    """Return why a method is missing."""
    for names, why in NAMED:
        if name in names.split():
            return why
    for parts, why in REASONS:
        if any(part in name for part in parts.split()):
            return why
    return "no in-place form of it" if name.endswith("_") else "not written yet"


def table(title: str, names: list[str], different: dict[str, str]) -> str:
    """Return the section of one library."""
    compared = with_answers()
    there = [n for n in names if hasattr(Tensor, n)]
    missing = [n for n in names if n not in there]
    differs = [n for n in there if n in different]
    same = [n for n in there if n not in different]
    recorded = [n for n in same if n in compared]
    others = [n for n in same if n not in compared]
    by_reason: dict[str, list[str]] = {}
    for n in missing:
        by_reason.setdefault(reason(n), []).append(n)
    lines = [
        f"## {title}",
        "",
        f"{len(names)} names: {len(same)} the same, {len(differs)} differ, {len(missing)} missing.",
        "",
        "| state | methods |",
        "|---|---|",
        f"| same, compared with PyTorch's recorded answers | {shown(recorded)} |",
        f"| same name, no recorded answer | {shown(others)} |",
        f"| differs | {joined([(different[n], [n]) for n in differs])} |",
        f"| missing | {joined(sorted(by_reason.items()))} |",
    ]
    return "\n".join(lines) + "\n"


def modules() -> str:
    """Return the section of PyTorch's modules."""
    compared = with_answers()
    lines = [
        "## PyTorch's modules",
        "",
        "Without complex, sparse, quantised, nested ones, layouts, and what PyTorch removed.",
        "Compared: there is a recorded answer of PyTorch, or a case of its operator database.",
        "",
        "| module | names | there | compared | missing |",
        "|---|---|---|---|---|",
    ]
    for line in (HERE / "modules.txt").read_text().splitlines():
        module, _, text = line.partition(": ")
        names = text.split()
        there = [n for n in names if member(f"{module}.{n}")]
        known = [n for n in there if n.rpartition(".")[2] in compared]
        missing = shown([n for n in names if n not in there])
        share = f"{len(there)} ({len(there) / len(names):.0%})"
        compared_ones = f"{len(known)} ({len(known) / len(names):.0%})"
        lines.append(f"| `{module}` | {len(names)} | {share} | {compared_ones} | {missing} |")
    return "\n".join(lines) + "\n"


def joined(groups: list[tuple[str, list[str]]]) -> str:
    """Return names with what is said of them, for a cell of the table."""
    return "; ".join([f"{shown(names)} {why}" for why, names in groups]) or "-"


def with_answers() -> set[str]:
    """Return the words of all recorded calls: expressions, programs, gradients, and the operator database.

    A method with an answer answers for its other names, and for the one that changes its tensor.
    """
    data = HERE.parents[1] / "frontend" / "data"
    texts = [path.read_text() for path in (data / "programs").glob("*.txt")]
    for name in ("functions", "layers", "optimisers", "in_place"):
        texts += json.loads((data / f"{name}.json").read_text())
    texts += [*EXPRESSIONS, *archive.read(), *[case.method for case in CASES]]
    found = set(re.findall(r"\w+", " ".join(texts)))
    return found.union(*[names for row in METHODS if found & (names := {*row.plain, *row.changing})])


def member(name: str) -> bool:
    """Return whether PyTorch's dotted name is there."""
    found: object = frontend
    for part in name.split(".")[1:]:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def shown(names: list[str]) -> str:
    """Return names for a cell of the table."""
    return " ".join([f"`{n}`" for n in names]) or "-"


ARRAY_API_REASONS: Final = {
    "complex64": "no complex numbers",
    "complex128": "no complex numbers",
    "imag": "no complex numbers",
    "linalg.eig": "its results are complex",
    "linalg.eigvals": "its results are complex",
    "fft.": "the transforms give complex numbers",
}
ARRAY_API_DIFFERS: Final = {
    "linalg.svd": "full matrices of square ones only",
    "asarray": "an array of another library is always copied",
    "from_dlpack": "always copies",
    "linalg.qr": "float32 and float64",
}


SUITE: Final = (
    ("passed", 1178, "complex64 and complex128 skipped"),
    ("failed", 163, "no complex numbers: cases of complex numbers, the transforms, `imag`"),
    (
        "failed",
        16,
        "the operators `//` and `%` of infinities and zeros are PyTorch's, the functions the standard's",
    ),
    ("failed", 1, "`from_dlpack(copy=False)`: always copies"),
    ("failed", 1, "`signbit` of a NaN given as a Python number, which has no sign here"),
)
"""Outcomes of data-apis/array-api-tests at 55fcc601: outcome, tests, why."""


def suite() -> list[str]:
    """Return the lines about the standard's test suite, which is run by hand."""
    failed = "; ".join([f"{n} {outcome}: {why}" for outcome, n, why in SUITE[1:]])
    return [
        "",
        (
            "The standard's test suite (`array-api-tests` at 55fcc601, with a default where it takes the "
            f"widest complex dtype; `--max-examples 4 --disable-deadline`): {SUITE[0][1]} of "
            f"{sum(n for _, n, _ in SUITE)} tests pass ({SUITE[0][2]}); {failed}."
        ),
    ]


def array_api() -> str:
    """Return the section of the array API standard."""
    names = (HERE / "array_api.txt").read_text().split()
    there = [n for n in names if has(n)]
    missing = [n for n in names if n not in there]
    parts = {"all": names, "core": [n for n in names if "." not in n]}
    parts |= {p: [n for n in names if n.startswith(f"{p}.")] for p in ("linalg", "fft")}
    shares = [f"{p}: {sum([n in there for n in every])} of {len(every)}" for p, every in parts.items()]
    lines = [
        "## Array API standard 2024.12",
        "",
        f"Names of `frontend.array_api` ({'; '.join(shares)}). `Tensor.size` stays PyTorch's ",
        "method, not a number; operators keep PyTorch's promotion for tensors of shape (), functions have ",
        "the standard's.",
        "",
        "| state | names |",
        "|---|---|",
        f"| there | {shown([n for n in there if n not in ARRAY_API_DIFFERS])} |",
        f"| differs | {joined([(why, [n]) for n, why in ARRAY_API_DIFFERS.items()])} |",
        f"| missing | {joined([(why_missing(n), [n]) for n in missing])} |",
        *suite(),
    ]
    return "\n".join(lines) + "\n"


def has(name: str) -> bool:
    """Return whether the namespace has a name, such as "linalg.inv"."""
    *space, last = name.split(".")
    return hasattr(getattr(xp, space[0]) if space else xp, last)


def why_missing(name: str) -> str:
    """Return why the namespace lacks a name."""
    return next(why for part, why in ARRAY_API_REASONS.items() if name == part or name.startswith(part))


def page() -> str:
    """Return the page."""
    head = "# Coverage\n\nMethods of `Tensor` beside those of PyTorch 2.13 and of tinygrad's documentation.\n"
    head += "The recorded answers are of PyTorch 2.13 and 2.14. "
    head += "Written by `python -m tests.oracles.coverage`.\n"
    sections = (("PyTorch", "torch.txt", DIFFERS), ("tinygrad", "tinygrad.txt", OF_TINYGRAD))
    tables = [table(title, (HERE / file).read_text().split(), diff) for title, file, diff in sections]
    return "\n".join([head, modules(), *tables, array_api()])


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page; return 0."""
    command("tests.oracles.coverage", __doc__).parse_args(argv)
    OUT.write_text(page())
    print(f"written: {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
