"""The price of `HCQ_CHECK=1`: `hcq bench check --device cpu`.

There are two rows for each model: the first run of its launch without and with the comparison, in
milliseconds of this process's CPU time. Kernels come from the disk cache; plans are made anew each time.
Later runs cost nothing, because only the first run of a kernel is compared.

Not here: the models (`models`). Next: `frontend.check`, the comparison.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from frontend import Device
from frontend.check import TALLY
from frontend.evaluation.plan import PLANS
from hcq.config import override
from tools.bench.models import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend import Tensor
    from tools.bench.rows import Bench

SAMPLES: Final = 5
"""Samples of a figure, unless the bench is quick."""
QUICK: Final = ("BERT layer",)


def check(bench: Bench) -> None:
    """Measure the first run of each model without and with the comparison."""
    device = f"{bench.device.info.driver}:{bench.device.info.index}"
    default, Device.DEFAULT = Device.DEFAULT, device
    try:
        for name, model in MODELS.items():
            if bench.quick and name not in QUICK:
                continue
            first_run(model, checked=False)  # compiles
            count = 2 if bench.quick else SAMPLES
            plain = bench.add(name, [first_run(model, checked=False) for _ in range(count)], unit="ms")
            before = TALLY.kernels + TALLY.sampled, TALLY.sampled
            taken = [first_run(model, checked=True) for _ in range(count)]
            kernels, sampled = TALLY.kernels + TALLY.sampled - before[0], TALLY.sampled - before[1]
            times = sorted(taken)[count // 2] / plain
            note = f"{times:.1f} times, {kernels // count} kernels, {sampled // count} of them by a sample"
            bench.add(f"{name}, checked", taken, unit="ms", note=note)
    finally:
        Device.DEFAULT = default


def first_run(model: Callable[[], list[Tensor]], *, checked: bool) -> float:
    """Return the CPU time, in milliseconds, of a launch whose plan must be made."""
    tensors = model()
    PLANS.drop(Device.DEFAULT)
    with override(check=checked, validate=False):
        start = time.process_time()
        tensors[0].realize(*tensors[1:])
        Device[Device.DEFAULT].synchronize()
        return (time.process_time() - start) * 1e3


CASES = {"check": check}
