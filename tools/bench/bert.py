"""`python -m tools.bench.bert --torch PYTHON`: a BERT of 6 layers beside PyTorch, in turns.

Width 384, 6 heads, 8 sequences of 64 tokens, float32, no gradients; both sides have the same operations. Each
implementation is a process of its own that answers each line with the seconds of one forward pass.

Not here: single operations beside peers (`tools.performance`). Next: `docs/cpu-kernels.md`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.arguments import command, positive, program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LAYERS, WIDTH, HEADS, BATCH, TOKENS, WORDS = 6, 384, 6, 8, 64, 1000
HEAP: Final = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "-1"}
"""Keeps freed memory in the processes, so that neither is charged for new pages."""


def tokens() -> Any:
    """Return the input, the same in every process."""
    return np.random.default_rng(0).integers(0, WORDS, (BATCH, TOKENS)).astype(np.int32)


def _heads(x: Any) -> list[Any]:
    """Return queries, keys and values, each (batch, heads, tokens, depth)."""
    parts = x.reshape(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    return [parts[i] for i in range(3)]


def _joined(attention: Any) -> Any:
    return attention.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH)


def with_hcq() -> Callable[[], None]:
    """Return the forward pass in this project, captured and waited for."""
    from frontend import Device, Tensor, TinyJit, nn  # noqa: PLC0415 - PyTorch's environment lacks it

    def layer() -> Callable[[Tensor], Tensor]:
        qkv, out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        up, down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        norms = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

        def run(x: Tensor) -> Tensor:
            q, k, v = _heads(qkv(x))
            x = norms[0](x + out(_joined(q.scaled_dot_product_attention(k, v))))
            return norms[1](x + down(up(x).gelu()))

        return run

    words, places, norm = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH), nn.LayerNorm(WIDTH)
    layers = [layer() for _ in range(LAYERS)]

    def forward(x: Tensor) -> Tensor:
        first = norm(words(x) + places(Tensor.arange(TOKENS).reshape(1, -1)))
        return first.sequential(layers).realize()

    captured, x = TinyJit(forward), Tensor(tokens()).realize()

    def run() -> None:
        captured(x)
        Device[x.device].synchronize()

    return run


def with_torch() -> Callable[[], None]:
    """Return the forward pass in PyTorch, on as many threads as OMP_NUM_THREADS."""
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415 - in its own environment only

    nn, functional = torch.nn, torch.nn.functional
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def layer() -> Callable[[Any], Any]:
        qkv, out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        up, down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        norms = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

        def run(x: Any) -> Any:
            x = norms[0](x + out(_joined(functional.scaled_dot_product_attention(*_heads(qkv(x))))))
            return norms[1](x + down(functional.gelu(up(x), approximate="tanh")))

        return run

    words, places, norm = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH), nn.LayerNorm(WIDTH)
    layers = [layer() for _ in range(LAYERS)]
    indices = torch.from_numpy(tokens())

    def run() -> None:
        with torch.no_grad():
            x = norm(words(indices) + places(torch.arange(TOKENS)[None]))
            for one in layers:
                x = one(x)

    return run


def _answer(make: Callable[[], Callable[[], None]]) -> None:
    """Answer each line of stdin with the seconds of one call, after three calls."""
    run = make()
    for _ in range(3):
        run()
    for _ in sys.stdin:
        start = time.perf_counter()
        run()
        sys.stdout.write(f"{time.perf_counter() - start}\n")
        sys.stdout.flush()


def _started(python: str, side: str, threads: int) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    more = HEAP | {"OMP_NUM_THREADS": str(threads), "HCQ_DEVICE": "cpu", "PYTHONPATH": root}
    return subprocess.Popen(
        [*(["taskset", "-c", "0"] if threads == 1 else []), python, __file__, "--side", side],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | more,
    )


def _asked(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError("wanted the seconds of a forward pass, saw the process end; try its output above")
    return float(answer)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both, and print medians and their ratio as one line; return 0."""
    parser = command("tools.bench.bert", __doc__)
    parser.add_argument(
        "--torch", type=program, metavar="PYTHON", help="the interpreter of an environment with PyTorch"
    )
    parser.add_argument("--rounds", type=positive, default=9, help="samples of each (default 9)")
    parser.add_argument(
        "--threads", type=positive, default=2, help="1 pins each process to one core (default 2)"
    )
    parser.add_argument("--side", choices=("hcq", "torch"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.side:
        _answer(with_hcq if options.side == "hcq" else with_torch)
        return 0
    sides = {"hcq": _started(sys.executable, "hcq", options.threads)}
    if options.torch:
        sides["PyTorch"] = _started(options.torch, "torch", options.threads)
    samples: dict[str, list[float]] = {name: [] for name in sides}
    try:
        for _ in range(options.rounds):
            for name, process in sides.items():
                time.sleep(0.25)  # threads of OpenMP occupy cores for up to 0.2 s after work
                samples[name].append(_asked(process))
    finally:
        for process in sides.values():
            process.communicate()
    times = {name: median(found) for name, found in samples.items()}
    text = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in times.items())
    ratio = f", PyTorch / hcq {times['PyTorch'] / times['hcq']:.2f}" if options.torch else ""
    sys.stdout.write(f"BERT 6x384, 8x64 tokens: {text}{ratio}; median of {options.rounds}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
