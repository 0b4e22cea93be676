"""Two channels over the same memory, a compute channel and one of copies, with kernels to launch."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.host import SemOperation
from tests.emulator.nv_machine.client import Client, Memory, method, sem
from tests.emulator.nv_machine.launching import INCREMENT, STORE, Code, Launcher, copy_word, cubin, upload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.nv.machine import FindingKind

GEQ = SemOperation.ACQ_STRICT_GEQ


class Rig:
    """The channels of one client; offsets are those of `data`."""

    def __init__(self, client: Client, *kernels: str) -> None:
        self.client = client
        self.launcher = Launcher.make(client)
        self.copies = client.copy_channel()
        self.code: Code = upload(client, cubin(self.launcher.profile, STORE, INCREMENT, *kernels))
        self.data: Memory = client.memory(4096)
        self.signals: Memory = client.memory(4096)

    def params(self, at: int = 0, value: int = 1) -> bytes:
        return struct.pack("<QI", self.data.va + at, value)

    def launch(
        self, kernel: str, at: int = 0, *, action: int = 9, code: Code | None = None, **kw: Any
    ) -> list[int]:
        """Return methods that launch a kernel with a bank of its own."""
        params = self.params(at, kw.pop("value", 1))
        launcher = self.launcher
        return launcher.send(
            launcher.qmd(launcher.descriptor(code or self.code, kernel, params, **kw)), action
        )

    def copy(self, source: int, target: int) -> list[int]:
        """Return methods that copy a dword."""
        return copy_word(self.data.va + source, self.data.va + target)

    def upload(self, at: int, value: int, *, flags: int = 1) -> list[int]:
        """Return methods that upload a dword inline."""
        va = self.data.va + at
        words = method(1, M.LINE_LENGTH_IN, 4, 1, va >> 32, va & 0xFFFF_FFFF)
        return words + method(1, M.LAUNCH_DMA, flags) + method(1, M.LOAD_INLINE_DATA, value)

    def done(self, slot: int, value: int = 1) -> list[int]:
        """Return methods that set a signal once all earlier work is done."""
        return sem(self.signals.va + 16 * slot, value, RELEASE_WFI=True)

    def wait(self, slot: int, value: int = 1) -> list[int]:
        """Return methods that wait for a signal."""
        return sem(self.signals.va + 16 * slot, value, GEQ)

    def told(self, kind: FindingKind) -> Sequence[str]:
        """Return the reports of a kind."""
        return [report.message for report in self.client.kernel.reports if report.kind is kind]
