"""Programs typed for PyTorch, run with `import frontend as torch`: `python -m tests.oracles.programs`.

    python -m tests.oracles.programs          compare every program with PyTorch, which must be installed
    python -m tests.oracles.programs --record write PyTorch's values to tests/frontend/data/programs.json

A program is a text with `import torch` in tests/frontend/data/programs. Its `main(init, data)` returns
numbers and texts: `init(model)` sets all parameters to the same numbers in both libraries, `data(shape)`
draws inputs. Only the imports are changed.

Not here: the test without PyTorch (`tests.frontend.test_programs_of_pytorch`).
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DATA: Final = Path(__file__).parents[1] / "frontend" / "data"
PROGRAMS: Final = sorted(path.stem for path in (DATA / "programs").glob("*.txt"))
_IMPORTS: Final = (
    (r"^(\s*)import torch\.([\w.]+) as (\w+)", r"\1import frontend.\2 as \3"),
    (r"^(\s*)import torch\.([\w.]+)$", r"\1import frontend.\2\n\1import frontend as torch"),
    (r"^(\s*)import torch$", r"\1import frontend as torch"),
    (r"^(\s*)from torch((?:\.[\w.]+)?) import", r"\1from frontend\2 import"),
)


DIFFERS: Final = {
    ("checkpoint_mlp", 13): "a segment is recomputed without a call of its function",
    **dict.fromkeys(
        [("ctc_speech", k) for k in range(5, 12)],
        "a bias before a batch norm has a gradient of rounding alone, which AdamW scales to its rate",
    ),
}
"""(program, place of a value) -> why it is not PyTorch's."""


def program(name: str, *, ours: bool) -> ModuleType:
    """Return a program as a module; `ours`: with its imports changed."""
    text = (DATA / "programs" / f"{name}.txt").read_text()
    for pattern, new in _IMPORTS if ours else ():
        text = re.sub(pattern, new, text, flags=re.MULTILINE)
    module = ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)  # noqa: S102 - a text of this repository
    return module


def run(name: str, torch: Any, *, ours: bool) -> list[Any]:
    """Return the values of a program, flat."""
    drawn = np.random.default_rng(0)

    def data(shape: Sequence[int]) -> Any:
        return torch.tensor(drawn.standard_normal(shape).astype(np.float32))

    module = program(name, ours=ours)
    return _flat(module.main(_initializer(torch), data))


def _initializer(torch: Any) -> Callable[[Any], None]:
    def init(model: Any) -> None:
        rng = np.random.default_rng(5)
        with torch.no_grad():
            for full_name, p in model.named_parameters():
                values = rng.standard_normal(tuple(p.shape)) * 0.2
                values = values + 1 if p.ndim == 1 and "weight" in full_name else values
                p.copy_(torch.tensor(values.astype(np.float32)))

    return init


def _flat(value: Any) -> list[Any]:
    return [x for part in value for x in _flat(part)] if isinstance(value, (list, tuple)) else [value]


def wrong(name: str, got: list[Any], want: list[Any]) -> list[tuple[int, Any, Any]]:
    """Return (place, ours, PyTorch's) of the values of a program that differ, but for `DIFFERS`."""
    pairs = enumerate(zip(got, want, strict=True))
    return [(k, a, b) for k, (a, b) in pairs if not same(a, b) and (name, k) not in DIFFERS]


def same(got: Any, want: Any) -> bool:
    """Return whether two values agree: numbers to 2e-3 and 1e-4 near 0, everything else exactly."""
    if isinstance(got, (int, float)) and isinstance(want, (int, float)):
        return math.isclose(got, want, rel_tol=2e-3, abs_tol=1e-4)
    return bool(got == want)


def main(argv: Sequence[str] | None = None) -> int:
    """Record or compare; return 1 if a value differs."""
    parser = command("tests.oracles.programs", __doc__)
    parser.add_argument("--record", action="store_true", help="write the values of PyTorch")
    args = parser.parse_args(argv)
    torch = pytorch()
    import frontend  # noqa: PLC0415 - needed here alone

    wanted = {name: run(name, torch, ours=False) for name in PROGRAMS}
    if args.record:
        (DATA / "programs.json").write_text(json.dumps(wanted, indent=1) + "\n")
        return 0
    failed = 0
    for name, want in wanted.items():
        places = wrong(name, run(name, frontend, ours=True), want)
        failed += bool(places)
        print(f"{name}: {f'differs, (place, ours, PyTorch): {places[:5]}' if places else 'same'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(reported(main))
