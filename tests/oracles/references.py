"""`python -m tests.oracles.references`: the examples in PyTorch's docstrings, run here and in PyTorch.

The statements after `>>>` in the docstrings of the installed PyTorch run in order, in a process for each
library, with the name `torch` for either. After each, its value or the values of the names that it sets are
compared: tensors by dtype, shape, requires_grad and values to 2e-4, and numbers, texts and lists. Random
numbers are NumPy's in both, and parameters of new layers are set to such numbers.

The program prints each statement whose value differs and each that PyTorch alone runs, then the counts. It
exits with 1 if one differs that `KNOWN` does not name. It needs PyTorch. Nothing is kept.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PLACES: Final = (
    "", "Tensor", "nn", "nn.functional", "nn.Module", "nn.Sequential", "nn.ModuleDict", "nn.ParameterDict",
    "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "nn.utils.parametrizations", "optim",
    "optim.lr_scheduler", "optim.swa_utils", "distributions", "linalg", "special", "func", "fft", "autograd",
    "autograd.functional", "autograd.Function", "utils.data",
)  # fmt: skip
"""Where names with docstrings are, below `torch`."""
LEFT_OUT: Final = frozenset(
    {"set_default_device", "set_default_tensor_type", "compile", "nn.CircularPad3d", "nn.ReplicationPad3d"}
)
"""What changes the process for all that follow, needs a compiler, or takes minutes."""
DRAWS: Final = (
    "bernoulli", "normal(", "multinomial", "poisson", "sample", "exponential_", "ropout", "empty_like",
    "new_empty", "gumbel", "Transformer", "RReLU", "svd", "eigh", "nn.init",
)  # fmt: skip
"""Texts of examples whose values depend on the library's own random numbers, on memory or on signs."""
KNOWN: Final = {
    "from_numpy": "a copy",
    "as_tensor": "a copy",
    "asarray": "a copy",
    "from_dlpack": "a copy",
    "sort": "equal elements have no order",
    "linalg.tensorsolve": "a system of condition 1e4 in float32",
}
"""Name -> why its example differs."""


def examples(torch: Any) -> dict[str, list[str]]:
    """Return name -> statements of its docstring, each docstring once."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for place in PLACES:
        holder: Any = torch
        for part in place.split(".") if place else ():
            holder = getattr(holder, part, None) or importlib.import_module(f"torch.{place}")
        for name in sorted(n for n in dir(holder) if not n.startswith("_")):
            text = getattr(getattr(holder, name, None), "__doc__", None)
            if isinstance(text, str) and text not in seen and not inspect.ismodule(getattr(holder, name)):
                seen.add(text)
                full = f"{place}.{name}".lstrip(".")
                if full not in LEFT_OUT and (statements := list(_statements(text))):
                    found[full] = statements
    return found


def _statements(text: str) -> Iterator[str]:
    try:
        yield from [e.source for e in doctest.DocTestParser().get_examples(text)]
    except ValueError:  # an indentation that is not consistent
        yield from [f"{line.strip()[4:]}\n" for line in text.splitlines() if line.strip().startswith(">>> ")]


def _set_names(of: str | ast.AST) -> list[str]:
    """Return the names that assignments of a statement set."""
    try:
        tree = ast.parse(of) if isinstance(of, str) else of
    except SyntaxError:
        return []
    targets = [t for node in ast.walk(tree) if isinstance(node, ast.Assign) for t in node.targets]
    stored = [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return [n.id for n in stored if isinstance(n.ctx, ast.Store)]


class Runner:
    """Runs statements with one library."""

    def __init__(self, torch: Any, *, ours: bool) -> None:
        self.torch, self.ours, self.rng = torch, ours, np.random.default_rng(0)
        if ours:
            for name in PLACES[2:]:
                with contextlib.suppress(ImportError):
                    importlib.import_module(f"frontend.{name}")
            names = [n for n in sys.modules if n.startswith("frontend.")]
            sys.modules.update({"torch": torch, **{f"torch{n[8:]}": sys.modules[n] for n in names}})
        self._replace_draws()

    def _replace_draws(self) -> None:
        torch, draw = self.torch, self._draw
        torch.randn = draw(lambda s: self.rng.standard_normal(s))  # noqa: PLW0108 - rng is another one each time
        torch.rand = draw(lambda s: self.rng.random(s))  # noqa: PLW0108 - as above
        torch.empty = draw(np.zeros)
        torch.randperm = lambda n, **_: torch.tensor(self.rng.permutation(n))

        def randint(*args: Any, size: Any = None, high: Any = None, low: Any = 0, **names: Any) -> Any:
            *bounds, shape = [*args, size] if size is not None else args
            ends = bounds + ([high] if high is not None else [])
            least, most = ends if len(ends) == 2 else (low, ends[0])
            return self._made(self.rng.integers(least, most, tuple(shape)), **names)

        torch.randint = randint
        draws: dict[str, Callable[..., Any]] = {
            "uniform_": lambda s, a=0.0, b=1.0: self.rng.random(s) * (b - a) + a,
            "normal_": lambda s, mean=0.0, std=1.0: self.rng.standard_normal(s) * std + mean,
            "random_": lambda s, a=100, b=None: self.rng.integers(a * (b is not None), b or a, s),
        }
        for name, values in draws.items():
            setattr(torch.Tensor, name, self._in_place(values))

    def _made(self, values: Any, dtype: Any = None, requires_grad: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002 - PyTorch's
        made = self.torch.tensor(values.astype("float32") if values.dtype.kind == "f" else values)
        made = made if dtype is None else made.to(dtype)
        return made.requires_grad_() if requires_grad else made

    def _draw(self, values: Callable[[Any], Any]) -> Callable[..., Any]:
        def function(*shape: Any, size: Any = None, **names: Any) -> Any:
            whole = shape[0] if shape and isinstance(shape[0], (tuple, list)) else shape or size
            return self._made(values(tuple(whole)), **names)

        return function

    def _in_place(self, values: Callable[..., Any]) -> Callable[..., Any]:
        def method(t: Any, *args: Any, **names: Any) -> Any:
            with self.torch.no_grad():
                t.copy_(self.torch.tensor(values(tuple(t.shape), *args, **names)).to(t.dtype))
            return t

        return method

    def _settle(self, value: Any) -> None:
        """Set the parameters of a layer, in the order of their names."""
        if isinstance(value, self.torch.nn.Module):
            rng, lazy = np.random.default_rng(0), self.torch.nn.parameter.UninitializedParameter
            with self.torch.no_grad():
                for _, p in sorted(value.named_parameters(), key=lambda pair: pair[0]):
                    if not isinstance(p, lazy):
                        p.copy_(self._made(rng.standard_normal(tuple(p.shape)) * 0.3).to(p.dtype))

    def run(self, statements: Sequence[str]) -> list[Any]:
        """Return for each statement what it gave; ["!", name of an error] for one that raises."""
        torch, found = self.torch, []
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.manual_seed(0)
        names: dict[str, Any] = {
            "torch": torch, "nn": torch.nn, "F": torch.nn.functional, "optim": torch.optim,
            "np": np, "numpy": np,
        }  # fmt: skip
        for number, text in enumerate(statements):
            self.rng = np.random.default_rng(number)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                try:
                    found.append(self._step(text, names))
                except Exception as e:  # noqa: BLE001 - it is the answer
                    found.append(["!", f"{type(e).__name__}: {e}"[:160]])
                    for name in _set_names(text):
                        names.pop(name, None)
        return found

    def _step(self, text: str, names: dict[str, Any]) -> Any:
        value: Any = ["statement"]
        for node in ast.parse(text).body:
            if isinstance(node, ast.Expr):
                value = self._plain(eval(compile(ast.Expression(node.value), "", "eval"), names))  # noqa: S307 - of PyTorch
                continue
            exec(compile(ast.Module([node], []), "", "exec"), names)  # noqa: S102 - of PyTorch
            every = _set_names(node)
            for name in every:
                self._settle(names[name])
            value = [self._plain(names[name]) for name in every] or value
        return value

    def _plain(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, self.torch.Tensor):
            dtype = str(value.dtype).rpartition(".")[2]
            if "complex" in dtype or "qu" in dtype or "qint" in dtype:
                return ["?"]
            values = np.asarray(value.detach().double().numpy()).ravel()[:2000].tolist()
            return ["tensor", dtype, list(value.shape), bool(value.requires_grad), values]
        if isinstance(value, (str, bool, int, float)) or value is None:
            return [type(value).__name__ if not isinstance(value, str) else "str", value]
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            return ["array", str(value.dtype), list(value.shape), value.ravel().astype(float).tolist()]
        if isinstance(value, (tuple, list)) and depth < 3 and not isinstance(value, self.torch.nn.Module):
            return [self._plain(v, depth + 1) for v in value]
        return ["?"]


def same(a: Any, b: Any) -> bool:
    """Return whether two values agree: ["?"] with everything, numbers to 2e-4, everything else exactly."""
    if ["?"] in (a, b):
        return True
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=2e-4, abs_tol=1e-5) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)


def _answers(statements: dict[str, list[str]], library: str) -> dict[str, list[Any]]:
    """Return the answers of a library, computed in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "statements.json", Path(folder) / "answers"
        given.write_text(json.dumps(statements))
        line = [sys.executable, "-m", "tests.oracles.references", "--of", library, str(given), str(made)]
        here = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run(line, check=True, env=here, cwd=folder)  # examples write files
        found: dict[str, list[Any]] = pickle.loads(made.read_bytes())  # noqa: S301 - this program wrote it
        return found


def main(argv: Sequence[str] | None = None) -> int:
    """Compare all examples; return 1 if one differs that is not known."""
    parser = command("tests.oracles.references", __doc__)
    parser.add_argument("names", nargs="*", help="parts of names; by default all")
    parser.add_argument("--of", choices=("torch", "frontend"), help="answer FILE of statements in FILE")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    torch = pytorch()
    if args.of:
        runner = Runner(importlib.import_module(args.of), ours=args.of == "frontend")
        statements = json.loads(Path(args.names[0]).read_text())
        Path(args.names[1]).write_bytes(pickle.dumps({k: runner.run(v) for k, v in statements.items()}))
        return 0
    every = examples(torch)
    every = {k: v for k, v in every.items() if not args.names or any(n in k for n in args.names)}
    want, got = (_answers(every, library) for library in ("torch", "frontend"))
    counts, wrong = Counter[str](), 0
    for name, statements in every.items():
        drawn = any(text in " ".join([name, *statements]) for text in DRAWS)
        for text, a, b in zip(statements, want[name], got[name], strict=True):
            if a[:1] == ["!"] or (a == ["NoneType", None] and ".backward(" in text):
                continue
            refused = b[:1] == ["!"]
            kind = "refused" if refused else "same" if same(a, b) else "drawn" if drawn else "different"
            kind = "known" if kind == "different" and name in KNOWN else kind
            counts[kind] += 1
            wrong += kind == "different"
            if kind == "different" or (refused and "NameError" not in b[1]):
                print(f"{name}: {kind}: {text.strip()[:120]}\n    {str(b)[:160]}\n    {str(a)[:160]}")
    text = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
    print(f"{sum(counts.values())} statements: {text}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(reported(main))
