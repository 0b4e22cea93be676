"""Train a small convolutional network on hand-written digits, and test it on held-out ones.

    python examples/digits.py
    python examples/digits.py --device nv --steps 500 --min-accuracy 0.98
    python examples/digits.py --devices 2

The whole training step (drawing a batch, forward, backward, Adam, the running statistics of the batch
norms) is one captured launch. With several devices each of them has the model and a part of the batch, and a
step is not captured.

Not here: how capture works. Next: docs/nn-and-tinyjit.md, docs/many-devices.md.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path

import numpy as np

from frontend import Device, Tensor, TinyJit, dtypes, nn, stats
from hcq.config import override
from hcq.errors import HcqError

DATA = Path(__file__).parent / "data" / "digits.npz"


class Net:
    """Two convolutions with batch norms and pools, one linear layer: 8x8 pixels to ten classes."""

    def __init__(self) -> None:
        self.conv1, self.norm1 = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm(16)
        self.conv2, self.norm2 = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm(32)
        self.head = nn.Linear(32 * 2 * 2, 10)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of images (batch, 1, 8, 8)."""
        x = self.norm1(self.conv1(x)).relu().max_pool2d()
        x = self.norm2(self.conv2(x)).relu().max_pool2d()
        return self.head(x.flatten(1))


def load(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images and labels to train on (80 %), then those held out (20 %)."""
    with np.load(DATA) as data:
        images, labels = data["images"].astype(np.float32)[:, None] / 16, data["labels"].astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = images[order], labels[order]
    cut = len(images) * 4 // 5
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def progress(step: int, steps: int, loss: float, start: float) -> None:
    """Draw the progress bar on stderr."""
    done = step * 30 // steps
    bar = "#" * done + "." * (30 - done)
    sys.stderr.write(f"\r[{bar}] step {step}/{steps}  loss {loss:.4f}  {time.perf_counter() - start:.1f} s ")
    sys.stderr.flush()


def train(net: Net, images: Tensor, labels: Tensor, steps: int, batch: int) -> int:
    """Train; return how many kernels a step runs."""
    optimiser = nn.optim.Adam(nn.state.get_parameters(net), lr=0.004)

    several = "," in images.device

    def step() -> Tensor:
        with Tensor.train():
            chosen = Tensor.randint(batch, high=images.shape[0])
            if several:
                chosen = chosen.shard(images.device)
            loss = net(images[chosen]).sparse_categorical_crossentropy(labels[chosen]).backward()
            optimiser.step()
            return loss if not several else loss.realize()

    once = step if several else TinyJit(step)
    start, kernels = time.perf_counter(), 0
    for i in range(1, steps + 1):
        before = stats.kernels
        loss = once()
        kernels = stats.kernels - before
        if i % 10 == 0 or i == steps:
            progress(i, steps, loss.item(), start)
    sys.stderr.write("\n")
    return kernels


def main() -> int:
    """Train, test, report; 1 when the accuracy is too low."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--device",
        default=None,
        help="such as cpu, nv, amd:1, nv-emu:sm_90; default: HCQ_DEVICE or what there is",
    )
    parser.add_argument(
        "--devices", type=int, default=1, help="how many: device:0, device:1, ... (default 1)"
    )
    parser.add_argument("--steps", type=int, default=300, help="(default 300)")
    parser.add_argument("--batch", type=int, default=128, help="images a step")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches (default 0)")
    parser.add_argument("--min-accuracy", type=float, default=0.97, help="exit with 1 below it")
    args = parser.parse_args()
    if min(args.devices, args.steps, args.batch) < 1:
        parser.error("--devices, --steps, --batch: wanted at least 1 of each")
    if not DATA.is_file():
        parser.error(f"no file {DATA}: copy it from the project's folder examples/data")
    settings = contextlib.ExitStack()
    try:
        Device.DEFAULT = args.device or Device.DEFAULT
        if args.devices > 1:
            if Device.DEFAULT == "cpu":
                settings.enter_context(override(cpu_devices=args.devices))
            Device.DEFAULT = ",".join([f"{Device.DEFAULT}:{i}" for i in range(args.devices)])
        first = Device[Device.DEFAULT.partition(",")[0]]
        Device[Device.DEFAULT]  # opens all
    except HcqError as error:
        parser.error("\n".join([str(error), *getattr(error, "__notes__", [])]))
    Tensor.manual_seed(args.seed)
    images, labels, held_images, held_labels = load(args.seed)
    start = time.perf_counter()
    net = Net()
    kernels = train(net, Tensor(images), Tensor(labels), args.steps, args.batch)
    with Tensor.train(False):
        guesses = net(Tensor(held_images)).argmax(1)
    accuracy = (guesses == Tensor(held_labels)).cast(dtypes.float32).mean().item()
    print(f"device: {Device.DEFAULT} ({first.hcq.info.name})")
    print(f"kernels a step: {kernels}")
    print(f"compiled: {stats.lowered} kernels")
    print(f"time: {time.perf_counter() - start:.1f} s for {args.steps} steps of {args.batch} images")
    print(f"held-out accuracy: {accuracy:.4f} on {len(held_labels)} images")
    settings.close()
    return 0 if accuracy >= args.min_accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
