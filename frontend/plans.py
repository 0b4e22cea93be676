"""Which plans are kept: the youngest, as many as their bytes allow.

A plan counts with what it was measured to hold: the memory of its launch (prebuilt words, argument blocks,
ring words, of all copies), the code of its kernels, and `OBJECTS` for each kernel. Plans that share one
each count it. Beyond `Config.plan_bytes` the oldest are dropped; one that is needed again is made again and
is young then. Whoever still has a dropped plan, a replay in flight or a captured function, goes on with it.

Not here: what a plan is (`plan`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hcq.config import config

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.launch import Kernel

OBJECTS: Final = 24 << 10
"""Bytes of Python objects of one kernel's launch: plan, commands, patches, generated code, expressions.

CPython 3.11, tracemalloc: 15 KiB of launch and plan, 9 KiB of expressions that no other plan shares.
"""
_MEASURE: Final = 64
"""Plans added between measurements of all: launches in flight together make more copies."""


def nbytes(plan: Any) -> int:
    """Return the bytes that a `frontend.plan.Plan` holds."""
    kernels: tuple[Kernel, ...] = plan.kernels
    code = sum([len(k.program.image.code) for k in kernels if k.program is not None])
    launch = 0 if plan.executable is None else plan.executable.nbytes
    return 2 * code + launch + OBJECTS * len(kernels)  # the host's copy of the code and the device's


class Plans:
    """Plans by age. Changed only with `LOCK` of `frontend.device` held."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[Any, Callable[[Any], None], int]] = {}
        self.nbytes = 0
        """Of all plans, as last measured."""
        self._added = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, key: Any, plan: Any, drop: Callable[[Any], None]) -> None:
        """Keep a plan, as the newest; `drop(key)` is called when it is evicted."""
        self.remove(key)
        size = nbytes(plan)
        self._kept[key] = plan, drop, size
        self.nbytes += size
        self._added += 1
        if self._added >= _MEASURE:
            self._measure()
        most = config().plan_bytes
        while self.nbytes > most and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            _, forget, _ = self._kept[oldest]
            self.remove(oldest)
            forget(oldest)

    def remove(self, key: Any) -> None:
        """Count a plan no longer."""
        found = self._kept.pop(key, None)
        if found is not None:
            self.nbytes -= found[2]

    def drop(self, device: str) -> None:
        """Drop all plans of a device."""
        for key, (plan, forget, _) in list(self._kept.items()):
            if plan.device.name == device:
                self.remove(key)
                forget(key)

    def _measure(self) -> None:
        self._kept = {key: (plan, drop, nbytes(plan)) for key, (plan, drop, _) in self._kept.items()}
        self.nbytes = sum([size for _, _, size in self._kept.values()])
        self._added = 0


PLANS: Final = Plans()
