"""`python -m tests.oracles.libraries`: models of libraries for PyTorch, run here and in PyTorch.

    python -m tests.oracles.libraries [--only NAME,NAME] [--packages FOLDER]

Each entry of tests/oracles/libraries.txt imports a library and makes `m`, a module or None, and `out`,
tensors or containers of them. It runs in a process for each library: with PyTorch, and with `frontend`
under the name `torch`. Parameters are those that PyTorch drew. Results and the gradients of their sum with
fixed weights are compared to 1e-4 of their greatest.

It needs PyTorch, and the packages that the entries name: `pip install --no-deps --target FOLDER PACKAGE`.
Modules of other packages that libraries import at their heads, as `torchvision`, are replaced by empty ones.
It prints what differs, fails here alone or is missing, and exits with 1 if one differs or fails here alone.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import MagicMock

import numpy as np

from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

ENTRIES: Final = Path(__file__).with_suffix(".txt")
EMPTY: Final = (
    "torchvision", "torchvision.transforms", "torchvision.transforms.functional", "torchvision.models",
    "torchvision.utils", "torchvision.datasets", "torchvision.datasets.utils", "torchvision.ops",
    "torchvision.io", "torchaudio", "torchaudio.functional", "torchaudio.transforms", "matplotlib",
    "matplotlib.pyplot", "matplotlib.patches", "seaborn", "accelerate", "pytorch_fid",
    "pytorch_fid.inception", "pytorch_fid.fid_score",
)  # fmt: skip
"""Modules that no entry uses, and libraries import."""
LIMIT_S: Final = 600
KNOWN: Final = {
    **dict.fromkeys(("vq", "rvq", "fsq", "lfq"), "imports torch.distributed.nn, which is not there"),
}
"""Entry -> why it fails here."""


def entries() -> dict[str, str]:
    """Return name -> text of all entries."""
    found = re.split(r"^## (\w+)\n", ENTRIES.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


class _Names(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module of PyTorch as the one of `frontend`, or as its attribute."""

    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> Any:
        if not fullname.startswith("torch."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name = spec.name.removeprefix("torch.")
        try:
            return importlib.import_module(f"frontend.{name}")
        except ModuleNotFoundError:
            found: Any = importlib.import_module("frontend")
            for part in name.split("."):
                if not hasattr(found, part):
                    raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name) from None
                found = getattr(found, part)
            module: ModuleType = found
            return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has run."""


def _library(name: str, packages: str) -> Any:
    """Return PyTorch, or `frontend` as the module `torch`."""
    for empty in EMPTY:
        sys.modules[empty] = MagicMock(__spec__=importlib.machinery.ModuleSpec(empty, None), __path__=[])
    if name == "frontend":
        sys.modules["torch"] = importlib.import_module("frontend")
        sys.meta_path.insert(0, _Names())
    sys.path.append(packages)
    return importlib.import_module("torch")


def _leaves(value: Any) -> list[Any]:
    if hasattr(value, "detach") or isinstance(value, (int, float)):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [leaf for part in parts for leaf in _leaves(part)]


def _array(t: Any) -> np.ndarray[Any, Any]:
    return np.array(t.detach().numpy() if hasattr(t, "detach") else t)


def run(name: str, library: str, packages: str, states: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Run an entry in this process; return its results, its gradients by name, and the states it began with.

    `states` are those that PyTorch had, in the order of `load`; [] in PyTorch.
    """
    torch, drawn, kept = _library(library, packages), np.random.RandomState(7), list[Any]()

    def load(module: Any) -> Any:
        module.eval()
        own = {key: _array(t) for key, t in module.state_dict().items() if hasattr(t, "detach")}
        if states:
            wanted = states[len(kept)]
            if list(own) != list(wanted):
                raise AssertionError(f"state_dict has the names {sorted(set(own) ^ set(wanted))}")
            module.load_state_dict({key: torch.tensor(v) for key, v in wanted.items()}, strict=False)
        kept.append(own)
        return module

    def normal(*shape: int) -> Any:
        return torch.tensor(np.asarray(drawn.randn(*shape), "float32"))

    def natural(end: int, *shape: int) -> Any:
        return torch.tensor(drawn.randint(0, end, shape))

    torch.manual_seed(0)
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "load": load}
    names |= {"normal": normal, "natural": natural}
    exec(compile(entries()[name], name, "exec"), names)  # noqa: S102 - a text of this repository
    results, loss, module = _leaves(names["out"]), None, names["m"]
    for t in results:
        if hasattr(t, "detach") and t.dtype.is_floating_point and t.requires_grad:
            weights = np.asarray(np.random.RandomState(3).randn(*t.shape), "float32")
            part = (t * torch.tensor(weights)).sum()
            loss = part if loss is None else loss + part
    if loss is not None and module is not None:
        loss.backward()
    gradients = {} if module is None else {n: p.grad for n, p in module.named_parameters()}
    return {
        "results": [_array(t) for t in results],
        "gradients": {n: None if g is None else _array(g) for n, g in gradients.items()},
        "states": kept,
    }


def differences(got: Mapping[str, Any], want: Mapping[str, Any]) -> list[str]:
    """Return what differs between the runs of an entry."""
    if len(got["results"]) != len(want["results"]) or list(got["gradients"]) != list(want["gradients"]):
        return ["other results or parameters"]
    gradients = want["gradients"]
    largest = max([np.abs(g).max() for g in gradients.values() if g is not None and g.size], default=0)
    both = enumerate(zip(got["results"], want["results"], strict=True))
    pairs = [(f"result {k}", a, b, 0) for k, (a, b) in both]
    pairs += [(f"gradient of {n}", got["gradients"][n], g, largest) for n, g in gradients.items()]
    return [f"{what}: {text}" for what, a, b, scale in pairs if (text := _difference(a, b, 1e-3 * scale))]


def _difference(a: Any, b: Any, least: float) -> str:
    if a is None or b is None:
        return "" if a is b else "None on one side"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{a.shape}, PyTorch {b.dtype}{b.shape}"
    if b.dtype.kind != "f":
        return "" if np.array_equal(a, b) else f"{np.sum(a != b)} of {b.size} elements"
    bound = 1e-4 * max(np.abs(b, where=np.isfinite(b), out=np.zeros_like(b)).max(initial=0), least) + 1e-10
    wrong = ~(np.isclose(a, b, rtol=0, atol=bound, equal_nan=True))
    return f"{wrong.sum()} of {b.size}, by up to {np.abs(a - b)[wrong].max():.3g}" if wrong.any() else ""


def compared(name: str, packages: str, folder: Path) -> str:
    """Return "equal", or what is wrong with an entry: "missing: …", "fails: …" or "differs: …"."""
    found = []
    for library in ("torch", "frontend"):
        made = folder / f"{name}.{library}"
        line = [sys.executable, "-m", "tests.oracles.libraries", "--only", name, "--packages", packages]
        env = os.environ | {"LIBRARY": library, "MADE": str(made), "GIVEN": str(folder / f"{name}.torch")}
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, env=env, check=False)
        except subprocess.TimeoutExpired:
            return f"{'missing' if library == 'torch' else 'fails'}: longer than {LIMIT_S} s"
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"signal {-done.returncode}"]
            return f"{'missing' if library == 'torch' else 'fails'}: {last[0]}"
        found.append(pickle.loads(made.read_bytes()))  # noqa: S301 - of the process above
    wrong = differences(found[1], found[0])
    return f"differs: {'; '.join(wrong[:3])}" if wrong else "equal"


def main(argv: Sequence[str] | None = None) -> int:
    """Run entries; return 1 if one differs or fails here alone."""
    parser = command("tests.oracles.libraries", __doc__)
    parser.add_argument("--only", default="", help="names of entries, with commas")
    parser.add_argument("--packages", default=".", help="the folder of the packages")
    args = parser.parse_args(argv)
    if "LIBRARY" in os.environ:
        library, given = os.environ["LIBRARY"], Path(os.environ["GIVEN"])
        states = pickle.loads(given.read_bytes())["states"] if library == "frontend" else []  # noqa: S301 - as above
        Path(os.environ["MADE"]).write_bytes(pickle.dumps(run(args.only, library, args.packages, states)))
        return 0
    pytorch()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only.split(",") if args.only else entries():
            text = compared(name, args.packages, Path(folder))
            known = name in KNOWN and text.startswith("fails")
            counts["known" if known else text.partition(":")[0]] += 1
            print(f"{name}: {text}", *([f"({KNOWN[name]})"] if known else []), flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    return 1 if counts["differs"] or counts["fails"] else 0


if __name__ == "__main__":
    raise SystemExit(reported(main))
