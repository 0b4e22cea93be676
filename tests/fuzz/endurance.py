"""A long run that checks for leaks: `python -m tests.fuzz.endurance [--minutes 30] [--seed 0] [--json FILE]`.

It repeats training with new shapes, opening and closing of devices, and faults with recovery on the cpu
device. It samples resident bytes, descriptors, threads, mappings, bytes of the disk cache and bytes of plans
(both with small limits). With `--steps N` it does N training steps instead, each of another shape, under the
usual limits of memory. It prints a line for each sample. The first third is warm-up, in which caches fill.
The maximum of the last third must not exceed that of the second by more than a margin; otherwise the exit
status is 1.

Next: `frontend.evaluation.plan` and `hcq.store`, whose limits this checks.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import hcq
from drivers.cpu import layouts
from frontend import Tensor, TinyJit, nn
from frontend.evaluation.plan import PLANS
from hcq.config import override
from hcq.errors import DeviceFault
from hcq.graph import Graph
from hcq.pushbuffer import PushBuffer
from hcq.store import Store
from tests.drivers.cpu.rig import NoArguments
from tools.arguments import above_zero, command, natural, output, positive

if TYPE_CHECKING:
    from collections.abc import Sequence

CACHE_BYTES: Final = 8 << 20
PLAN_BYTES: Final = 32 << 20
"""Enough for the plans of some hundred rounds."""
SAMPLES: Final = 30
"""Samples of one run."""
_UNKNOWN_PACKET: Final = 0x4D
_PRODUCT: Final = ("hcq.", "frontend.", "drivers.")
_FAULT_S: Final = 100.0
"""Seconds within which a fault must be reported; it takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources of the process: bytes of memory, cache and plans, and counts of the rest."""

    resident: int
    descriptors: int
    threads: int
    mappings: int
    cache: int
    plans: int


MARGINS: Final = {"resident": 0.08, "descriptors": 0.0, "threads": 0.0, "mappings": 0.05, "cache": 0.25,
                  "plans": 0.1}  # fmt: skip
"""Relative growth that is allowed, for fragmentation of memory and irregular trimming of the cache."""


def sample(cache: Path) -> Sample:
    """Measure this process and the cache's folder."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        resident=pages * os.sysconf("SC_PAGE_SIZE"),
        descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - only names
        threads=len(os.listdir("/proc/self/task")),  # noqa: PTH208 - the same
        mappings=Path("/proc/self/maps").read_text().count("\n"),
        cache=sum(found.st_size for _, found in Store(cache).files()),
        plans=PLANS.nbytes,
    )


def census(*packages: str) -> Counter[str]:
    """Count the live objects of some packages by class; by default of `hcq`, the drivers and the frontend."""
    gc.collect()
    names = (f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects())
    return Counter(name for name in names if name.startswith(packages or _PRODUCT))


def train(rng: random.Random, *, width: int = 0) -> None:
    """Train a two-layer model for four captured steps, with random sizes unless `width` is given."""
    inner, batch = width or rng.randrange(3, 400), width or rng.randrange(2, 64)
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    model: list[Any] = [nn.Linear(16, inner), lambda x: x.relu(), nn.Linear(inner, 4)]
    optimiser = nn.optim.SGD(nn.state.get_parameters(model), lr=0.1)
    x = Tensor(numbers.standard_normal((batch, 16), "f"))
    y = Tensor(numbers.integers(0, 4, batch).astype("i"))

    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        with Tensor.train():
            loss = x.sequential(model).sparse_categorical_crossentropy(y).backward()
            optimiser.step()
            return loss.realize()

    losses = [step(x, y).item() for _ in range(4)]
    if not np.isfinite(losses).all():
        raise ArithmeticError(f"losses {losses} with {inner} inner features and a batch of {batch}")


def step(number: int) -> None:
    """Train a weight for one step, one kernel; each number has another shape.

    The kernel computes the gradient of the squares and writes the weight. `rounds` train layers.
    """
    weight = Tensor(np.ones(1 + number, "f"), requires_grad=True)
    weight.square().sum().backward()
    assert weight.grad is not None
    with Tensor.no_grad():
        weight -= 0.125 * weight.grad
    if not (weight.numpy() == 0.75).all():
        raise ArithmeticError(f"a step with {1 + number} weights did not make them 0.75: {weight.tolist()}")


def open_and_close() -> None:
    """Open a device, replay a graph with a copy twice, and close it."""
    with hcq.open("cpu", validate=False) as device:
        a, b = device.alloc(4096), device.alloc(4096)
        graph = Graph()
        graph.add(device.compute, device.compute.record().fill(a, 7).barrier().copy(b, a))
        executable = graph.compile()
        executable.replay()
        executable.replay().wait()
        if bytes(b.host()) != bytes((7, 0, 0, 0)) * 1024:
            raise ArithmeticError("a replayed copy gave other bytes")


def fault_and_recover() -> None:
    """Cause a fault of a device with an unknown packet, recover, and use the device."""
    with hcq.open("cpu", validate=False) as device:
        kept = device.alloc(4096)
        device.compute.submit(device.compute.record().fill(kept, 3)).wait()
        pushbuffer = PushBuffer(64, NoArguments())
        pushbuffer.words += (_UNKNOWN_PACKET, *layouts.Nop.pack()[1:])
        queue = device.copies[0]
        queue.ring.submit(pushbuffer)
        try:
            queue.submit(queue.record()).wait(timeout_s=_FAULT_S)
        except DeviceFault:
            device.recover()
        else:
            raise AssertionError("an unknown packet caused no fault")
        device.compute.submit(device.compute.record().copy(device.alloc(4096), kept)).wait()


def rounds(rng: random.Random, count: int, *, width: int = 0) -> None:
    """Do `count` rounds."""
    for _ in range(count):
        train(rng, width=width)
        open_and_close()
        fault_and_recover()


def growth(samples: Sequence[Sample]) -> list[str]:
    """Return, as text, the resources that grew from the second third of the samples to the last."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    grew = []
    for field in fields(Sample):
        before = max(getattr(one, field.name) for one in middle)
        after = max(getattr(one, field.name) for one in last)
        if after > before * (1 + MARGINS[field.name]):
            grew.append(f"{field.name} grew from {before} to {after}")
    return grew


def endure(minutes: float, seed: int, cache: Path) -> tuple[list[Sample], int]:
    """Do rounds for the given minutes; return the samples and the number of rounds."""
    rng = random.Random(seed)  # noqa: S311 - a seed repeats it
    samples, done = [], 0
    start = time.monotonic()
    with override(cache=cache, cache_bytes=CACHE_BYTES, plan_bytes=PLAN_BYTES, validate=False):
        for number in range(1, SAMPLES + 1):
            while time.monotonic() < start + 60 * minutes * number / SAMPLES:
                rounds(rng, 1)
                done += 1
            samples.append(sample(cache))
            _print(samples[-1], f"{number} of {SAMPLES}, {done} rounds")
    return samples, done


def steps(count: int, cache: Path) -> list[Sample]:
    """Do `count` training steps of as many shapes, at least `SAMPLES`; return the samples."""
    samples: list[Sample] = []
    with override(cache=cache, cache_bytes=CACHE_BYTES, validate=False):
        for done in range(1, count + 1):
            step(done - 1)
            if done * SAMPLES // count > len(samples):
                samples.append(sample(cache))
                _print(samples[-1], f"{done} of {count} steps")
    return samples


def _print(one: Sample, when: str) -> None:
    shown = ", ".join(f"{name} {value:,}" for name, value in asdict(one).items())
    print(f"{when}: {shown}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tests.fuzz.endurance", __doc__)
    parser.add_argument("--minutes", type=above_zero, default=30.0, metavar="N", help="(default 30)")
    parser.add_argument("--steps", type=positive, metavar="N", help="do training steps of N shapes instead")
    parser.add_argument("--seed", type=natural, default=0, metavar="SEED", help="(default 0)")
    parser.add_argument("--json", type=output, metavar="FILE", help="write samples and result")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="hcq-endurance-") as folder:
        cache = Path(folder) / "cache"
        if options.steps is not None:
            samples, done, what = steps(options.steps, cache), options.steps, "steps of as many shapes"
        else:
            samples, done = endure(options.minutes, options.seed, cache)
            what = f"rounds in {options.minutes:g} minutes"
    grew = growth(samples)
    if options.json is not None:
        rows = [asdict(one) for one in samples]
        options.json.write_text(json.dumps({"done": done, "samples": rows, "grew": grew}, indent=1))
    print(f"{done} {what}: {'; '.join(grew) or 'nothing grew'}")
    return 1 if grew else 0


if __name__ == "__main__":
    sys.exit(main())
