"""The stack that kernels may use, 12 MiB, independent of the process's default for threads."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

from drivers.cpu import layouts
from drivers.cpu.driver import CpuDriver
from drivers.cpu.image import HostCode, compile_object, nothing_from_outside
from drivers.cpu.layouts import Slot
from drivers.cpu.link import HostImage
from drivers.cpu.native import translate
from drivers.cpu.primitives import fetch_add, load64, stack, store64, u64, view
from drivers.kernel import LinuxKernel
from hcq.config import override
from hcq.driver import BufferSpec, QueueKind
from hcq.pushbuffer import PushBuffer

SMALL = 64 << 10
"""The default stack of a thread in some C libraries and containers, in bytes."""


def deep(args: u64, x: u64, y: u64, z: u64) -> None:
    """Count, over almost 12 MiB of stack touched page by page from the top, as compiled code does."""
    bottom = stack(12578816)
    at = bottom + 12578816
    while at > bottom:
        at -= 4096
        store64(at, 1)
    slot = view(Slot, args)
    fetch_add(slot.value, load64(bottom))


def run_deep_kernels() -> None:
    """Set a small default stack, then run such kernels on a queue's thread and on workers."""
    attributes = (ctypes.c_uint64 * 16)()
    library = ctypes.CDLL(None)
    library.pthread_attr_init(attributes)
    assert not library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(SMALL))
    assert not library.pthread_setattr_default_np(attributes)
    machine = os.uname().machine
    image = HostImage(compile_object(translate((deep,), machine)), machine)
    code = HostCode(LinuxKernel(), image, nothing_from_outside)
    with override(workers=2):
        device = CpuDriver().open(0, None)
    memory = device.alloc(4096, BufferSpec())
    assert memory.host is not None
    pushbuffer = PushBuffer(64, None)  # type: ignore[arg-type]  # these packets place nothing
    pushbuffer.words += layouts.Exec.pack(
        function=code.address["deep"], args=memory.va, x=200, y=1, z=1, group_ns=0
    )
    pushbuffer.words += layouts.SetSignal.pack(signal=memory.va + 64, value=1)
    device.ring(QueueKind.COMPUTE, 0).submit(pushbuffer)
    while not device.wait(memory.va + 64, 1, 0.005):
        pass
    print(memory.host.cast("Q")[0])  # noqa: T201 - read by the test
    device.close()


def test_kernels_have_their_stack_with_a_small_default_stack() -> None:
    text = "from tests.drivers.cpu.test_cpu_stacks import run_deep_kernels as run; run()"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr
