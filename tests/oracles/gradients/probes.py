"""Random probes of gradients: the cases of `tests.oracles.gradients` at random shapes and numbers.

    python -m tests.oracles.gradients.probes ask --cases 5000 --out probes.jsonl  (needs PyTorch and NumPy)
    python -m tests.oracles.gradients.probes compare probes.jsonl

A seed gives the same probe as long as the cases do not change; a record holds its numbers. `ask` records
PyTorch's results. `compare` prints the differences and exits with 1 if there is one. Probes that PyTorch
refuses are not recorded. Methods with documented differences use ordinary numbers only.

Not here: the cases (`cases`), the record of these (`oracle`).
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

from tests.oracles.gradients.case import INF, LEAST, MOST, NAN, Case
from tests.oracles.gradients.cases import CASES
from tests.oracles.gradients.compare import compared, inputs_of
from tests.oracles.gradients.oracle import record
from tests.oracles.gradients.reductions import CASES as REDUCTIONS
from tools.arguments import command, existing, natural, output, positive, pytorch, reported
from tools.tensor_reference import DIFFERS

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHARES: Final = {"binary_crossentropy": (0, 1), "binary_crossentropy_logits": (1,)}
"""Method -> the inputs that must be between 0 and 1."""
_PLAIN: Final = set(DIFFERS) | {"topk", "scaled_dot_product_attention"}
"""Methods with ordinary numbers only: they differ by design, or PyTorch's result is not unique (topk of equal
numbers) or NaN (masked attention)."""
_NAMED: Final = {case.name: case for case in CASES}


@dataclass(frozen=True, slots=True)
class Probe:
    """A case with random inputs."""

    seed: int
    case: Case
    dtype: str
    kind: str
    shapes: list[list[int]]
    """Shapes of the inputs."""
    numbers: list[list[Any]]
    """Flat data of the inputs: floats where gradients are computed, else integers or bools."""

    def as_case(self) -> Case:
        """Return the case with the probe's inputs and without excluded places."""
        inputs = [_nested(n, s) for n, s in zip(self.numbers, self.shapes, strict=True)]
        loose = self.case.beside_one or not self.case.tiled  # because sums cancel
        return replace(self.case, inputs=lambda _: inputs, places=(), beside_one=loose)


def _nested(numbers: list[Any], shape: list[int]) -> Any:
    if not shape:
        return numbers[0]
    step = prod(shape[1:])
    return [_nested(numbers[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _shape(data: Any) -> list[int]:
    if not isinstance(data, list):
        return []
    return [len(data), *(_shape(data[0]) if data else [])]


def _flat(data: Any) -> list[Any]:
    return [one for part in data for one in _flat(part)] if isinstance(data, list) else [data]


_SPECIAL: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 20.0, -88.0, INF, -INF, NAN)


def _numbers(r: random.Random, kind: str, dtype: str, count: int) -> list[float]:
    if kind == "special":
        return [r.choice(_SPECIAL) for _ in range(count)]
    if kind == "edges":
        return [
            r.choice((*_SPECIAL, LEAST[dtype], -LEAST[dtype], MOST[dtype], -MOST[dtype]))
            for _ in range(count)
        ]
    if kind == "ties":
        return [float(r.randint(-2, 2)) for _ in range(count)]
    if kind == "shares":
        return [r.choice((0.0, 1.0, r.random())) for _ in range(count)]
    return [r.choice((-1, 1)) * r.uniform(0.25, 4) for _ in range(count)]


def _shapes(r: random.Random, case: Case, given: list[list[int]]) -> list[list[int]]:
    if case.tiled:
        base = [r.choice((0, 1, 1, 2, 3, 5)) for _ in range(r.randint(0, 3))]
        return [[n if r.random() < 0.8 else 1 for n in base] for _ in given]
    if case in REDUCTIONS and len(given) == 1 and len(given[0]) == 2 and given[0][1] == 3:
        return [[r.randint(1, 4), r.choice((3, 4, 7))]]
    return given


def probe(seed: int) -> Probe:
    """Return the probe of a seed."""
    r = random.Random(seed)  # noqa: S311 - probes, not secrets
    case = r.choice(CASES)
    dtype = r.choice(case.dtypes)
    template = case.inputs(dtype)
    floats = [any(isinstance(one, float) for one in _flat(data)) or data == [] for data in template]
    own = [_shape(data) for data in template]
    shapes = _shapes(r, case, own)
    kind = r.choice(("ordinary", "ordinary", "ties", "special"))
    if case.method in _PLAIN or case.places:
        kind = "ordinary"
    elif kind == "special" and case.tiled:  # in sums overflow depends on the order of additions
        kind = "edges"
    shares = _SHARES.get(case.method, ())
    numbers = [
        _numbers(r, "shares" if i in shares else kind, dtype, prod(shape)) if floats[i] else _flat(data)
        for i, (data, shape) in enumerate(zip(template, shapes, strict=True))
    ]
    return Probe(seed, case, dtype, kind, shapes, numbers)


def ask(first: int, count: int) -> list[str]:
    """Return PyTorch's results of `count` probes from seed `first` on, as lines of JSON."""
    torch = pytorch()
    lines: list[str] = []
    seed = first - 1
    while len(lines) < count:
        seed += 1
        one = probe(seed)
        try:
            found = record(torch, one.as_case(), one.dtype)
        except (RuntimeError, IndexError, ValueError):  # PyTorch refuses: out of a method's domain
            continue
        about = {"seed": seed, "kind": one.kind, "shapes": one.shapes, "numbers": one.numbers}
        lines.append(json.dumps(about | found))
    return lines


def differing(lines: list[str]) -> dict[int, str]:
    """Return the probes that differ from the records, as text by seed."""
    found = {}
    for line in lines:
        want = json.loads(line)
        about = [want[name] for name in ("dtype", "kind", "shapes", "numbers")]
        one = Probe(want["seed"], _NAMED[want["case"]], *about)
        case = one.as_case()
        wrong = compared(case, inputs_of(case, one.dtype), want)
        if wrong:
            text = "\n    ".join([f"{one.case.name} {one.dtype} {one.shapes} {one.numbers}", *wrong])
            found[one.seed] = f"seed {one.seed}: {text}"
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tests.oracles.gradients.probes", __doc__)
    acts = parser.add_subparsers(dest="act", required=True)
    asking = acts.add_parser("ask", help="record what PyTorch gives for random probes")
    asking.add_argument("--cases", type=positive, default=200, metavar="N", help="how many (default 200)")
    asking.add_argument("--first", type=natural, default=0, metavar="SEED", help="the first seed (default 0)")
    asking.add_argument(
        "--out", type=output, required=True, metavar="FILE", help="where the records are written"
    )
    comparing = acts.add_parser("compare", help="compare the records with this project")
    comparing.add_argument("file", type=existing, metavar="FILE", help="records that `ask` wrote")
    options = parser.parse_args(argv)
    if options.act == "ask":
        lines = ask(options.first, options.cases)
        options.out.write_text("\n".join(lines) + "\n")
        print(f"{len(lines)} probes in {options.out}")
        return 0
    lines = options.file.read_text().splitlines()
    found = differing(lines)
    for text in found.values():
        print(text)
    print(f"{len(lines) - len(found)} of {len(lines)} probes agree")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(reported(main))
