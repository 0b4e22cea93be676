"""The machines that are open: one for all devices of a variant with several GPUs.

Not here: the syntax of a variant (`emulator.nv.machine`, `emulator.amd.machine`). Next:
`emulator.amd.machine`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.shared.surprises import Rejections

V = TypeVar("V")
K = TypeVar("K")


class OpenMachines(Generic[V, K]):
    """Returns a machine for each open. Thread-safe.

    All opens of the same variant with several GPUs share one machine while it is referenced, so that the GPUs
    reach each other. Each open of a variant with one GPU gets a new machine.
    """

    def __init__(self, make: Callable[[V, Rejections | None], K]) -> None:
        """`make` opens a new machine of a variant that rejects some quirks, and returns its kernel."""
        self._make = make
        self._lock = threading.Lock()
        self._shared: WeakValueDictionary[V, K] = WeakValueDictionary()

    def kernel(self, variant: V, rejections: Rejections | None, *, gpus: int) -> K:
        """Return the kernel of a machine of a variant with `gpus` GPUs.

        `rejections`: see `emulator.shared.surprises`; with it the machine is never shared.
        """
        if gpus == 1 or rejections is not None:
            return self._make(variant, rejections)
        with self._lock:
            found = self._shared.get(variant)
            if found is None:
                found = self._shared[variant] = self._make(variant, None)
            return found
