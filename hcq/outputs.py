"""Text that kernels leave in memory for the host: when it is read, and how a fault includes it.

Not here: what the memory contains (`interop.output`). Next: `Device.outputs`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Protocol

from hcq.locks import unless_taken


class Output(Protocol):
    """Memory in which the kernels of one module leave text."""

    def take(self) -> tuple[str, str]:
        """Return the text so far, and remarks about it such as lost text; clear the memory.

        No kernel of the module runs meanwhile.
        """

    def finding(self) -> str:
        """Return the assertion that a kernel has failed, and forget it; empty if there is none."""

    def unused(self) -> bool:
        """Return whether no program that writes to it exists any more."""


class Outputs:
    """The outputs of one device. Text goes to stdout, remarks to stderr. Usable from any thread."""

    __slots__ = ("_all", "_lock")

    def __init__(self) -> None:
        self._all: list[Output] = []
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, output: Output) -> None:
        """Read `output` from now on, until it is unused and the device is idle. Keeps it alive."""
        with self._lock:
            self._all.append(output)

    def findings(self) -> tuple[str, ...]:
        """Return the assertions that kernels failed."""
        return tuple(filter(None, [one.finding() for one in tuple(self._all)]))

    def flush(self, locks: Sequence[RLock], idle: Callable[[], bool]) -> None:
        """Print the text of all outputs, if the device is idle and no other thread holds one of `locks`.

        `locks` are those of the queues: nothing is submitted meanwhile. Otherwise the text stays for a later
        call.
        """
        texts: list[tuple[str, str]] = []

        def collect() -> None:
            if not idle():
                return
            with self._lock:
                texts.extend(one.take() for one in self._all)
                self._all = [one for one in self._all if not one.unused()]

        unless_taken(locks, collect)
        for text, remark in texts:
            if text:
                sys.stdout.write(text)
                sys.stdout.flush()
            if remark:
                sys.stderr.write(remark + "\n")
