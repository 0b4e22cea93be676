"""What a foreign driver must do on an emulated GPU: 25 cases, run in one process in this order.

Each case is a function of a `Rig` that raises when something is wrong. The last one ends the device.
Not here: the process that runs them (`cell`), kernels that are no tensors (`kernels`).
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.foreign import kernels
from tests.foreign.redirected import tinygrad

if TYPE_CHECKING:
    from collections.abc import Callable

_COPIED: Final = 40 << 20
_SUBMISSIONS: Final = 3000
_NOWHERE: Final = 0x5000_0000_0000
_LATE_S: Final = 0.3
"""How long after a wait its signal is submitted; a slow machine changes nothing but the order's margin."""


@dataclass
class Rig:
    """tinygrad's device of one vendor on an emulated kernel."""

    vendor: str
    kernel: Any
    device: Any
    random: np.random.Generator

    @property
    def tensor(self) -> Any:
        """The class of tinygrad's tensors."""
        return tinygrad().Tensor

    def normal(self, *shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
        """Return random numbers."""
        return self.random.standard_normal(shape).astype(dtype)

    def program(self, name: str, text: str) -> Any:
        """Compile and upload a kernel of one pointer."""
        module = tinygrad("tinygrad.device")
        image = self.device.compiler.compile(text)
        signature = (("out", 0, tinygrad().dtypes.int, (64,)),)
        target = self.device.renderer.target
        return self.device.runtime(module.TinyELF(image, name, target, signature))

    def memory(self, size: int) -> Any:
        """Allocate memory of the device."""
        return self.device.allocator.alloc(size, tinygrad("tinygrad.device").BufferSpec(nolru=True))

    def words(self, memory: Any, count: int) -> np.ndarray[Any, Any]:
        """Return the first words of memory of the device."""
        out = np.zeros(count, np.int32)
        self.device.allocator._copyout(out.view(np.uint8).data, memory)  # noqa: SLF001 - tinygrad has no other
        return out


def _same(seen: object, wanted: object) -> None:
    if not np.array_equal(np.asarray(seen), np.asarray(wanted)):
        raise AssertionError(f"wanted {wanted!r}, seen {seen!r}")


def _near(seen: Any, wanted: Any, error: float) -> None:
    worst = float(np.abs(np.asarray(seen, np.float64) - np.asarray(wanted, np.float64)).max())
    if not worst <= error:
        raise AssertionError(f"differs by {worst:g}, at most {error:g} is right")


def opened(rig: Rig) -> None:
    """The device is open and knows its GPU."""
    if not rig.device.arch.startswith(("gfx", "sm_")):
        raise AssertionError(f"the architecture is {rig.device.arch!r}")


def copies(rig: Rig) -> None:
    """40 MiB go to the device and come back."""
    data = rig.random.integers(0, 256, _COPIED, dtype=np.uint8)
    _same(rig.tensor(data).realize().numpy(), data)


def add(rig: Rig) -> None:
    """Two vectors are added."""
    a, b = rig.normal(1000), rig.normal(1000)
    _same((rig.tensor(a) + rig.tensor(b)).numpy(), a + b)


def _matmul(dtype: str, error: float) -> Callable[[Rig], None]:
    def matmul(rig: Rig) -> None:
        a, b = (rig.tensor(rig.normal(128, 128)).cast(dtype).realize() for _ in range(2))
        wanted = a.float().numpy().astype(np.float64) @ b.float().numpy().astype(np.float64)
        _near((a @ b).float().numpy(), wanted, error)

    return matmul


def reduce(rig: Rig) -> None:
    """Rows, columns and all of a matrix are summed."""
    a = rig.random.integers(-9, 9, (200, 300)).astype(np.int32)
    t = rig.tensor(a).realize()
    _same(t.sum(0).numpy(), a.sum(0))
    _same(t.sum(1).numpy(), a.sum(1))
    _same(t.max().item(), a.max())


def softmax(rig: Rig) -> None:
    """Rows become probabilities."""
    a = rig.normal(32, 100)
    exponents = np.exp(a - a.max(1, keepdims=True))
    _near(rig.tensor(a).softmax(1).numpy(), exponents / exponents.sum(1, keepdims=True), 1e-6)


def sort(rig: Rig) -> None:
    """Numbers are sorted."""
    a = rig.normal(100)
    _same(rig.tensor(a).sort()[0].numpy(), np.sort(a))


def doubles(rig: Rig) -> None:
    """Arithmetic of 64 bits is exact to 64 bits."""
    a, b = rig.normal(64, dtype="float64"), rig.normal(64, dtype="float64")
    _near((rig.tensor(a) * rig.tensor(b) + 1).numpy(), a * b + 1, 1e-15)


def dependent(rig: Rig) -> None:
    """20 kernels run, each on what the one before wrote."""
    t = rig.tensor(np.arange(256, dtype=np.int32)).realize()
    for number in range(20):
        t = (t * 3 + number).contiguous().realize()
    wanted = np.arange(256, dtype=np.int32)
    for number in range(20):
        wanted = wanted * 3 + number
    _same(t.numpy(), wanted)


def jit(rig: Rig) -> None:
    """A graph of several kernels is captured and replayed with new inputs."""

    def several(a: Any, b: Any) -> Any:
        c = (a + b).contiguous()
        return ((c @ c).contiguous() - a).realize()

    graph = tinygrad().TinyJit(several)
    for _ in range(5):
        a, b = (rig.random.integers(-3, 3, (16, 16)).astype(np.int32) for _ in range(2))
        seen = graph(rig.tensor(a).realize(), rig.tensor(b).realize()).numpy()
        _same(seen, (a + b) @ (a + b) - a)


def jit_variable(rig: Rig) -> None:
    """A graph is replayed with another value of a variable."""
    variable = tinygrad("tinygrad.uop.ops").UOp.variable("n", 1, 64)
    data = rig.random.integers(-9, 9, 64).astype(np.int32)
    source = rig.tensor(data).realize()
    graph = tinygrad().TinyJit(lambda a: (a.sum() * 2).contiguous().realize() + 1)
    for length in (3, 5, 8, 64, 1):
        _same(graph(source[: variable.bind(length)]).item(), data[:length].sum() * 2 + 1)


def _scratch(words: int) -> Callable[[Rig], None]:
    def scratch(rig: Rig) -> None:
        program, memory = rig.program("scratch", kernels.scratch(rig.vendor, words)), rig.memory(4096)
        program(memory, global_size=(1, 1, 1), local_size=(64, 1, 1), wait=True)
        lanes = np.arange(64)
        _same(rig.words(memory, 64), 7 * lanes % words + lanes)

    return scratch


def timestamps(rig: Rig) -> None:
    """The times of a kernel's begin and end grow, and so do those of two submissions."""
    program, memory = rig.program("store", kernels.store(rig.vendor)), rig.memory(4096)
    first = program(memory, global_size=(1, 1, 1), local_size=(64, 1, 1), wait=True)
    if first is None or not first >= 0:
        raise AssertionError(f"a kernel took {first} s")
    device, stamps = rig.device, [rig.device.new_signal() for _ in range(2)]
    for stamp in stamps:
        queue = device.hw_compute_queue_t().wait(device.timeline_signal, device.timeline_value - 1)
        queue.timestamp(stamp).signal(device.timeline_signal, device.next_timeline()).submit(device)
    device.synchronize()
    if not 0 < stamps[0].timestamp < stamps[1].timestamp:
        raise AssertionError(f"times {stamps[0].timestamp} and {stamps[1].timestamp} us")


def in_turn(rig: Rig) -> None:
    """The compute queue and the copy queue take turns 50 times on one timeline."""
    device, signal = rig.device, rig.device.new_signal()
    a, b = rig.memory(4096), rig.memory(4096)
    program = rig.program("store", kernels.store(rig.vendor))
    for turn in range(50):
        compute = device.hw_compute_queue_t().wait(signal, 2 * turn).memory_barrier()
        state = program.fill_kernargs((a,))
        compute.exec(program, state, (1, 1, 1), (64, 1, 1)).signal(signal, 2 * turn + 1).submit(device)
        copy = device.hw_copy_queue_t().wait(signal, 2 * turn + 1)
        copy.copy(b, a, 256).signal(signal, 2 * turn + 2).submit(device)
    signal.wait(100)
    _same(rig.words(b, 64), np.arange(64))


def early_wait(rig: Rig) -> None:
    """A queue waits for a value that another queue signals later."""
    device, signal, done = rig.device, rig.device.new_signal(), rig.device.new_signal()
    device.hw_compute_queue_t().wait(signal, 7).signal(done, 1).submit(device)
    time.sleep(_LATE_S)
    device.hw_copy_queue_t().signal(signal, 7).submit(device)
    done.wait(1)


def shared_timeline(rig: Rig) -> None:
    """A queue waits for 59 and signals 60 of the word that another queue sets to 59 later."""
    device, signal = rig.device, rig.device.new_signal()
    device.hw_compute_queue_t().wait(signal, 59).signal(signal, 60).submit(device)
    time.sleep(_LATE_S)
    device.hw_copy_queue_t().signal(signal, 59).submit(device)
    signal.wait(60)


def asleep(rig: Rig) -> None:
    """The host sleeps in the kernel driver until a queue that waits for the host has gone on."""
    device, gate = rig.device, rig.device.new_signal()
    queue = device.hw_compute_queue_t().wait(device.timeline_signal, device.timeline_value - 1).wait(gate, 1)
    queue.signal(device.timeline_signal, device.next_timeline()).submit(device)

    def opens() -> None:
        gate.value = 1

    timer = threading.Timer(3 * _LATE_S, opens)
    timer.start()
    device.synchronize()
    timer.join()


def submissions(rig: Rig) -> None:
    """3,000 submissions run, of which each is one more than its queue's ring has seen."""
    device = rig.device
    for number in range(_SUBMISSIONS):
        kind = device.hw_compute_queue_t if number % 3 else device.hw_copy_queue_t
        queue = kind().wait(device.timeline_signal, device.timeline_value - 1)
        queue.signal(device.timeline_signal, device.next_timeline()).submit(device)
    device.synchronize()
    _same(device.timeline_signal.value, device.timeline_value - 1)


def training(rig: Rig) -> None:
    """A step of gradient descent equals NumPy's."""
    x, w = rig.normal(32, 8), rig.normal(8, 4)
    weight = rig.tensor(w.copy())
    loss = (rig.tensor(x) @ weight).relu().square().mean()
    gradient = loss.gradient(weight)[0]
    active = np.maximum(x @ w, 0)
    _near(gradient.numpy(), x.T @ (2 * active / active.size), 1e-5)
    optimiser = tinygrad("tinygrad.nn.optim").SGD([weight], lr=0.1)
    with tinygrad("tinygrad.helpers").Context(TRAINING=1):
        optimiser.zero_grad()
        (rig.tensor(x) @ weight).relu().square().mean().backward()
        optimiser.step()
    _near(weight.numpy(), w - 0.1 * (x.T @ (2 * active / active.size)), 1e-5)


def convolution(rig: Rig) -> None:
    """A convolution of 3 x 3 equals a sum of shifted products."""
    x, w = rig.normal(2, 3, 10, 10), rig.normal(4, 3, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", windows, w)
    _near(rig.tensor(x).conv2d(rig.tensor(w)).numpy(), wanted, 1e-4)


def functions(rig: Rig) -> None:
    """Functions of the device are as exact as tinygrad makes them."""
    a = np.abs(rig.normal(200)) + 0.1
    t = rig.tensor(a).realize()
    for name, error in (("exp", 2e-4), ("log", 1e-5), ("sqrt", 1e-6), ("sin", 1e-5), ("tanh", 1e-5)):
        _near(getattr(t, name)().numpy(), getattr(np, name)(a), error)


def nowhere(rig: Rig) -> None:
    """A store to an address without memory is reported as a fault at that page."""
    buffer = tinygrad("tinygrad.runtime.support.hcq").HCQBuffer(_NOWHERE, 4096)
    device, program = rig.device, rig.program("store", kernels.store(rig.vendor))
    program(buffer, global_size=(1, 1, 1), local_size=(64, 1, 1))
    while not any(f"{_NOWHERE:#x}"[:-3] in str(report) for report in rig.kernel.reports):
        time.sleep(0.01)
    try:
        device.on_device_hang()
    except RuntimeError as error:
        device.error_state = error
        told = re.search(r"0x([0-9A-F]+)", str(error))
        if told is None or int(told[1], 16) & ~0xFFF != _NOWHERE:
            raise AssertionError(f"wanted a fault in the page {_NOWHERE:#x}, seen {error}") from error
    else:
        raise AssertionError("no fault was told to the driver")


CASES: Final[dict[str, Callable[[Rig], None]]] = {
    "open": opened,
    "copies": copies,
    "add": add,
    "matmul f32": _matmul("float32", 1e-4),
    "matmul f16": _matmul("float16", 0.05),
    "matmul bf16": _matmul("bfloat16", 0.4),
    "reduce": reduce,
    "softmax": softmax,
    "sort": sort,
    "f64": doubles,
    "dependent kernels": dependent,
    "graph": jit,
    "graph with a variable": jit_variable,
    "scratch of 160 bytes": _scratch(40),
    "scratch of 800 bytes": _scratch(200),
    "timestamps": timestamps,
    "two queues in turn": in_turn,
    "wait before its signal": early_wait,
    "one timeline of two queues": shared_timeline,
    "sleep until an event": asleep,
    "3000 submissions": submissions,
    "training step": training,
    "convolution": convolution,
    "functions": functions,
    "store to nowhere": nowhere,
}
QUICK: Final = ("open", "add", "two queues in turn", "one timeline of two queues", "store to nowhere")
"""Cases that a quick run of tests has."""
