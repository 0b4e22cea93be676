"""Model of a data-parallel training step over many devices: `python -m tools.scaling`.

    python -m tools.scaling --latency-us 5 --bandwidth-gb 50 --compute-ms 100 --parameters 1e9

It prints for 2 to 4,096 devices what a device sends for the gradients of a step, how long the exchanges
take, and the efficiency: the time of a step on one device, with the same batch for each, by that on all. What
moves is what the frontend moves (`frontend.distributed.partition`); tests compare the bytes. Assumed, not
measured:

- each device sends to and receives from all others at `--bandwidth-gb`, all at once; no switch is shared;
- an exchange takes `--latency-us`, `--copy-us` for each copy into a device, and its bytes by the bandwidth;
- the backward pass is two thirds of `--compute-ms` and makes `--values` gradients of one size, evenly;
- additions and updates take no time, no device is late, and kernels and copies do not slow each other.

Each device gets a copy of each other one, so that the copies' time grows with their number. One process has
all devices: between machines `mpirun` exchanges instead, by MPI's own algorithms.

Not here: measurements (`tools.bench overlap`, `all-reduce`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from frontend.distributed.captured import MOST_BUCKETS
from frontend.distributed.partition import ONE_EXCHANGE, ONE_SHOT
from frontend.distributed.transport import QUEUED
from tools.arguments import above_zero, command, positive, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

DEVICES: Final = (2, 4, 8, 64, 512, 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What an exchange costs: seconds of each, of each copy into a device, bytes a second."""

    latency_s: float
    copy_s: float
    bandwidth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A row: bytes that a device sends, and efficiencies; steps exchange after or beside their kernels."""

    devices: int
    sent: float
    exchange_ms: float
    step_after_ms: float
    step_beside_ms: float
    efficiency_after: float
    efficiency_beside: float


def exchanges(devices: int, nbytes: float) -> int:
    """Return how many exchanges the all-reduce of a value takes, one after the other."""
    return 1 if nbytes < (ONE_EXCHANGE if devices == 2 else ONE_SHOT) else 2


def moved(devices: int, nbytes: float) -> float:
    """Return the bytes that an all-reduce of a value moves between devices, of all together."""
    return (devices - 1) * nbytes * (devices if exchanges(devices, nbytes) == 1 else 2)


def buckets(values: int, each: float) -> int:
    """Return into how many buckets a captured step divides an exchange of values with bytes for a device."""
    return ceil(values / ceil(max(QUEUED, values * each / MOST_BUCKETS) / each))


def scaled(devices: int, *, nbytes: float, values: int, compute_s: float, link: Link) -> Scaled:
    """Return the row of a step that makes `values` gradients with `nbytes` together."""
    count, sent = exchanges(devices, nbytes / values), moved(devices, nbytes / values) * values / devices
    copies = values * (devices - 1) * link.copy_s
    one = copies + sent / count / link.bandwidth
    parts = buckets(values, sent / count / values)
    backward = compute_s * 2 / 3
    # A bucket waits for its kernels, and for the bucket before it; the second exchange for all of the first.
    beside = max(one / parts, one + link.latency_s - backward * (parts - 1) / parts) + link.latency_s
    rest = (count - 1) * (one + link.latency_s)
    after, total = count * (one + link.latency_s), compute_s + beside + rest
    return Scaled(
        devices=devices, sent=sent, exchange_ms=after * 1e3, step_after_ms=(compute_s + after) * 1e3,
        step_beside_ms=total * 1e3, efficiency_after=compute_s / (compute_s + after),
        efficiency_beside=compute_s / total,
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 0."""
    parser = command("tools.scaling", __doc__)
    parser.add_argument("--latency-us", type=above_zero, default=5.0)
    parser.add_argument("--copy-us", type=above_zero, default=1.0)
    parser.add_argument("--bandwidth-gb", type=above_zero, default=50.0, help="GB a second, each way")
    parser.add_argument("--compute-ms", type=above_zero, default=100.0, help="of a step on one device")
    parser.add_argument("--parameters", type=above_zero, default=1e9, help="of float32")
    parser.add_argument("--values", type=positive, default=100, help="gradients (default: 100)")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row")
    options = parser.parse_args(argv)
    link = Link(
        latency_s=options.latency_us / 1e6, copy_s=options.copy_us / 1e6, bandwidth=options.bandwidth_gb * 1e9
    )
    nbytes, compute_s = 4 * options.parameters, options.compute_ms / 1e3
    if not options.json:
        print("devices     sent GB   exchange ms   efficiency: exchanges after   beside the backward pass")
    for n in DEVICES:
        r = scaled(n, nbytes=nbytes, values=options.values, compute_s=compute_s, link=link)
        text = f"{n:7,d}{r.sent / 1e9:12.3f}{r.exchange_ms:14.1f}{r.efficiency_after:30.1%}"
        print(json.dumps(asdict(r)) if options.json else f"{text}{r.efficiency_beside:27.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
