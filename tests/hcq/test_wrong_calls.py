"""Calls with wrong arguments: each is an error of this project that says what was wanted and what was seen.

Nothing is sent and nothing is half made: the device does its work right after each of them.

Not here: wrong values of the environment (`test_registry`), launches of others' kernels
(`tests/interop/test_interop_mistakes.py`). Next: `test_messages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hcq
from hcq.config import override
from hcq.errors import UsageError, UsageTypeError
from hcq.params import Expr, Param
from hcq.registry import wrap
from tests.hcq.fake import ADD, ONE, FakeDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hcq.device import Device

NAN = float("nan")


class Scene:
    """A device without validation, and objects to call wrongly."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.queue = device.compute
        self.a, self.b = device.alloc(64, label="a"), device.alloc(64, label="b")
        self.signal = device.signal(host_set=True, label="ready")
        self.program = device.load(ADD)
        self.args = self.program.args(self.a, self.a, self.b)
        self.point = self.queue.submit(self.queue.record())
        self.x, self.n = Param("x"), Param("n")

    def record(self) -> Any:
        """Return an empty command buffer, of any type: the calls are wrong."""
        return self.queue.record()

    def submit(self, commands: Any, **options: Any) -> Any:
        """Submit."""
        return self.queue.submit(commands, **options)

    def load(self, **changed: object) -> object:
        """Load the kernel with other properties."""
        names = ("name", "arch", "code", "args", "kernarg_size")
        return self.device.load(hcq.KernelImage(**{n: getattr(ADD, n) for n in names} | changed))  # type: ignore[arg-type]

    def graph(self) -> hcq.Executable:
        """Compile a graph that copies 32 bytes to `x`."""
        graph = hcq.Graph(label="step")
        x = graph.param("x")
        graph.add(self.queue, self.record().copy(x, self.b, 32))
        return graph.compile()


@pytest.fixture
def scene() -> Iterator[Scene]:
    with wrap(FakeDevice()) as device:
        yield Scene(device)


RECORDED: list[tuple[Callable[[Any], object], str]] = [
    (lambda s: s.record().copy(s.a, "b"), "copy from: wanted a Buffer, a Param or an Expr, seen 'b'"),
    (lambda s: s.record().copy(None, s.b), "copy to: wanted a Buffer.* seen None"),
    (lambda s: s.record().copy(s.a.va, s.b.va, 8), "seen [0-9]+\nhint: Device.alloc makes a buffer"),
    (lambda s: s.record().copy(s.a, s.b, 1.5), "copy, size: wanted an int, a Param or an Expr, seen 1.5"),
    (lambda s: s.record().copy(s.a, s.b, "8"), "copy, size: wanted an int.* seen '8'"),
    (lambda s: s.record().copy(s.a, s.b, -1), "it has 64 bytes, -1 were asked for"),
    (lambda s: s.record().fill(s.a, "x"), "fill, value: wanted an int.* seen 'x'"),
    (lambda s: s.record().fill(s.a, None), "fill, value: wanted an int.* seen None"),
    (lambda s: s.record().fill(s.a, s.b), "fill, value: wanted an int.* seen <Buffer 'b'"),
    (lambda s: s.record().fill(s.a, -1), "fill: wanted 0 to 0xffffffff, seen -0x1"),
    (lambda s: s.record().fill(s.a, 1 << 40), "fill: wanted 0 to 0xffffffff, seen 0x10000000000"),
    (lambda s: s.record().wait(s.signal, -1), "wanted a value of 64 bits from 0 on, seen -1"),
    (lambda s: s.record().wait(s.signal.at(1 << 64)), "wanted a value of 64 bits from 0 on"),
    (lambda s: s.record().signal(s.signal, 1 << 64), "wanted a value of 64 bits from 0 on"),
    (lambda s: s.record().fill(s.x >> 1, 0, 4), "fill: wanted a Param or param \\+ number, seen Expr"),
    (lambda s: s.record().copy(s.a, s.x >> 1, 4), "copy from: wanted a Param or param"),
    (lambda s: s.record().write(Expr(s.x, float_bits=32), 4), "write to: wanted a Param or param"),
    (lambda s: s.record().fill(s.a, 0, "x"), "fill, size: wanted an int.* seen 'x'"),
    (lambda s: s.record().write(s.a, 1.5), "write, value: wanted an int.* seen 1.5"),
    (lambda s: s.record().write(s.a, 1, bits=16), "write: wanted 32 or 64 bits, seen 16"),
    (lambda s: s.record().write(s.a, 1, bits="x"), "write: wanted 32 or 64 bits, seen 'x'"),
    (lambda s: s.record().write(s.a, -1, bits=[]), r"write: wanted 32 or 64 bits, seen \[\]"),
    (lambda s: s.record().write(s.a, 1, bits=32.0), "write: wanted 32 or 64 bits, seen 32.0"),
    (lambda s: s.record().write(s.a, 1 << 40), "write: 0x10000000000 does not fit 32 bits; wanted"),
    (lambda s: s.record().write(s.a, -(1 << 40)), "write: -0x10000000000 does not fit 32 bits"),
    (lambda s: s.record().write(None, 1), "write to: wanted a Buffer.* seen None"),
    (lambda s: s.record().wait(5), "wanted a Point, or a Signal and a value, seen 5"),
    (lambda s: s.record().wait([s.point]), "wanted a Point, or a Signal and a value, seen \\["),
    (lambda s: s.record().wait(s.a, 1), "wanted a Signal and a value, or a Point, seen <Buffer"),
    (lambda s: s.record().wait(s.signal), "is a Signal, which has no value of its own"),
    (lambda s: s.record().wait(s.point, 1), "is a Point, which already carries its value"),
    (lambda s: s.record().wait(s.signal, "x"), "the value of <Signal ready: 0>: wanted an int.* seen 'x'"),
    (lambda s: s.record().signal(None), "wanted a Point, or a Signal and a value, seen None"),
    (lambda s: s.record().signal(s.signal, 1.5), "wanted an int.* seen 1.5"),
    (lambda s: s.record().timestamp(s.signal), "timestamp: wanted a Stamp, seen <Signal"),
    (lambda s: s.record().barrier("x"), "barrier: wanted one of Scope.QUEUE.* seen 'x'"),
    (lambda s: s.record().add("copy"), "wanted a command, such as hcq.Copy, seen 'copy'"),
    (lambda s: s.record().exec(None, None, groups=ONE, threads=ONE), "exec: wanted a Program and its arg"),
    (lambda s: s.record().exec(s.program, 5, groups=ONE, threads=ONE), "exec: wanted a Program and its"),
    (lambda s: s.record().exec(s.program, s.args, groups=(1.5, 1, 1), threads=ONE), "groups=.*seen 1.5"),
    (lambda s: s.record().exec(s.program, s.args, groups=(-1, 1, 1), threads=ONE), "at least 1 along each"),
    (lambda s: s.record().exec(s.program, s.args, groups=ONE, threads=(0, 1, 1)), "threads, wanted at least"),
    (lambda s: s.record().exec(s.program, s.args, groups=ONE, threads=(s.n, 1, 1)), "threads=.* int, seen"),
    (lambda s: s.record().exec(s.program, s.args, groups=ONE, threads=ONE, cluster=[0.5] * 3), "t, seen 0.5"),
]
SUBMITTED: list[tuple[Callable[[Any], object], str]] = [
    (lambda s: s.submit(None), "wanted a command buffer, seen None\nhint: the queue's record"),
    (lambda s: s.submit([]), r"wanted a command buffer, seen \[\]"),
    (lambda s: s.submit(s.record(), after=5), "after= takes a list of points, not 5\nhint: after="),
    (lambda s: s.submit(s.record(), values=[1]), r"values= takes a dict from Param to value, seen \[1\]"),
    (lambda s: s.submit(s.record(), values={"x": s.a}), "values= takes a dict from Param to value"),
    (lambda s: s.submit(s.record(), timeout_s="x"), "timeout_s: wanted seconds, .* seen 'x'"),
    (lambda s: s.submit(s.record(), timeout_s=NAN), "timeout_s: wanted seconds, .* seen nan"),
    (lambda s: s.submit(s.record().fill(s.x, 0, 16), values={s.x: 5}), "x: wanted a Buffer, seen 5"),
    (lambda s: s.submit(s.record().fill(s.a, s.n), values={s.n: s.b}), "n: wanted a number, seen <Buffer"),
    (lambda s: s.submit(s.record().fill(s.x, 0, 128), values={s.x: s.a}), "fill: bytes 0 to 128 lie outside"),
    (lambda s: s.submit(s.record().copy(s.a, s.b, s.n), values={s.n: 65}), "copy: bytes 0 to 65 lie outside"),
    (lambda s: s.submit(s.record().copy(s.a, s.b, s.n), values={s.n: 0}),
     "copy: wanted at least 1 byte, seen 0"),
    (lambda s: s.submit(s.record().fill(s.a, 0, s.n), values={s.n: 0}),
     "fill: wanted at least 1 byte, seen 0"),
    (lambda s: s.submit(s.record().fill(s.x + 2, 0, 16), values={s.x: s.a}), "fill: wanted an address and"),
    (lambda s: s.submit(s.record().fill(s.x + 60, 0, 16), values={s.x: s.a}), "bytes 60 to 76 lie outside"),
    (lambda s: s.queue.sync(timeout_s="x"), "timeout_s: wanted seconds"),
    (lambda s: s.device.sync(timeout_s=NAN), "timeout_s: wanted seconds"),
    (lambda s: s.device.sync(timeout_s=np.zeros(2)),
     r"timeout_s: wanted seconds, .* seen array\(\[0., 0.\]\)"),
    (lambda s: s.device.close(timeout_s="x"), "timeout_s: wanted seconds"),
    (lambda s: s.point.wait(timeout_s="x"), "timeout_s: wanted seconds"),
    (lambda s: s.signal.wait(9, timeout_s=NAN), "timeout_s: wanted seconds, .* seen nan"),
    (lambda s: s.signal.wait("x"), "wait for <Signal ready: 0>: wanted an int, seen 'x'"),
    (lambda s: s.signal.wait(1.5, timeout_s=0), "wanted an int, seen 1.5"),
    (lambda s: s.graph().replay(5), "replay of step: wanted a list of values, seen 5"),
    (lambda s: s.graph().replay(iter([s.a])), "replay of step: wanted a list of values, seen <list_iter"),
    (lambda s: s.graph().replay({s.a}), "replay of step: wanted a list of values, seen {<Buffer"),
    (lambda s: s.point.add_done_callback(5), "callback of <Point.*: wanted a function, seen 5"),
    (lambda s: s.graph().replay([5]), "x: wanted a Buffer, seen 5"),
    (lambda s: s.graph().replay([s.a.view(0, 16)]), "x: wanted at least 32 bytes, seen <Buffer"),
    (lambda s: s.graph().replay([s.a], after=5), "after= takes a list of points, not 5"),
    (lambda s: s.graph().replay([s.a], after=[5]), r"after= takes a list of points, not \[5\]"),
    (lambda s: s.graph().replay([s.a], timeout_s="x"), "timeout_s: wanted seconds"),
    (lambda s: s.graph().replay([np.zeros(2)]), r"x: wanted a Buffer, seen array\(\[0., 0.\]\)"),
    (lambda s: s.graph().replay(np.zeros(2)), r"wanted a list of values, seen array\(\[0., 0.\]\)"),
    (lambda s: s.graph().replay([s.a], after=np.zeros(2)),
     r"takes a list of points, not array\(\[0., 0.\]\)"),
    (lambda s: s.graph().submit(np.zeros(2)), "values= takes a dict from Param to value"),
    (lambda s: s.submit(s.record(), after=np.zeros(2)), "after= takes points, not "),
    (lambda s: s.graph().submit({"x": s.a}), "values= takes a dict from Param to value"),
]  # fmt: skip
MADE: list[tuple[Callable[[Any], object], str]] = [
    (lambda _: hcq.open(None), "wanted the name of a device, such as 'cpu' or 'nv:0', seen None"),  # type: ignore[arg-type]
    (lambda _: hcq.open("cpu", validate="x"), "validate: wanted True, False or None, seen 'x'"),  # type: ignore[arg-type]
    (lambda _: hcq.open("cpu", profile="x"), "profile: wanted True, False or None, seen 'x'"),  # type: ignore[arg-type]
    (lambda _: hcq.open("cpu", validate=[]), r"validate: wanted True, False or None, seen \[\]"),  # type: ignore[arg-type]
    (lambda _: hcq.open("cpu", seed=-1), "seed: wanted an int of at least 0, or None, seen -1"),
    (lambda _: override(nonsense=1).__enter__(), "no setting is called nonsense; there are device, valid"),
    (lambda _: hcq.counting(None).__enter__(), "counting: wanted an open device, seen None"),  # type: ignore[arg-type]
    (lambda s: s.device.alloc(64, queue=5), "memory of 64 bytes, queue: wanted a queue, seen 5"),
    (lambda s: s.device.alloc(64.0), "wanted a size in bytes, an int of at least 1, seen 64.0"),
    (lambda s: s.device.alloc([64]), r"wanted a size in bytes, an int of at least 1, seen \[64\]"),
    (lambda s: s.device.alloc(16, "host"), "wanted a kind of memory, an hcq.BufferSpec, seen 'host'"),
    (lambda s: s.device.alloc(16, hcq.BufferSpec(align="x")), "alignment 'x': wanted a power of two"),  # type: ignore[arg-type]
    (lambda s: s.device.alloc(16, hcq.BufferSpec(place="HOST")), "wanted a place of memory"),  # type: ignore[arg-type]
    (lambda s: s.device.alloc(16, []), r"wanted a kind of memory, an hcq.BufferSpec, seen \[\]"),
    (lambda s: s.device.alloc(16, hcq.BufferSpec(align=[])), "wanted a kind of memory"),  # type: ignore[arg-type]
    (
        lambda s: s.device.alloc(16, hcq.BufferSpec(coherent="no")),
        "coherent: wanted True or False, seen 'no'",
    ),  # type: ignore[arg-type]
    (lambda s: s.a.view("x"), "view of <Buffer 'a'.*: wanted bytes as ints, seen 'x' and None"),
    (lambda s: s.a.view(0, 1.5), "wanted bytes as ints, seen 0 and 1.5"),
    (lambda s: s.a.map_to("cpu"), "map <Buffer 'a'.*: wanted an hcq.Device, seen 'cpu'"),
    (lambda s: s.a.map_to([]), r"map <Buffer 'a'.*: wanted an hcq.Device, seen \[\]"),
    (lambda s: s.a.close(after=5), "close <Buffer 'a'.*, after: wanted a Point, seen 5"),
    (lambda s: s.a.close(reason=5), "close <Buffer 'a'.*, reason: wanted a function, seen 5"),
    (lambda s: s.device.signal("x"), "wanted an int of 64 bits as its value, seen 'x'"),
    (lambda s: s.device.signal(1 << 64), "wanted an int of 64 bits as its value"),
    (lambda s: setattr(s.signal, "value", 1.5), "wanted an int as its value, seen 1.5"),
    (lambda _: Param("n", bits=0), "parameter n, bits: wanted an int of at least 1, seen 0"),
    (lambda s: Expr(s.n, 0, -1).evaluate(5), "a shift that is an int of at least 0, seen 0 and -1"),
    (lambda _: hcq.open(np.zeros(2)), "wanted the name of a device"),  # type: ignore[arg-type]
    (lambda s: s.signal.at(np.zeros(2)).done(), r"wanted an int, seen array\(\[0., 0.\]\)"),
    (lambda _: Expr(5).evaluate(5), "wanted a Param in an Expr, seen 5"),  # type: ignore[arg-type]
    (lambda s: s.load(args=(hcq.ArgSlot("p", hcq.ArgKind.POINTER, 0, 8, []),)), "the access of p is"),  # type: ignore[arg-type]
    (lambda s: Expr(s.n, "x").evaluate(5), "wanted an int to add"),  # type: ignore[arg-type]
    (lambda s: Expr(s.n, float_bits=8).evaluate(5), "wanted 0, 16, 32 or 64 float_bits, seen 8"),  # type: ignore[arg-type]
    (lambda s: Expr(s.n, float_bits=32).evaluate("x"), "n = 'x' is no float32"),  # type: ignore[arg-type]
    (lambda s: s.device.clock().to_ns("x"), "wanted ticks as an int, seen 'x'"),
    (lambda s: s.signal.at("x").done(), "wanted an int, seen 'x'"),
    (lambda s: s.load(args=(hcq.ArgSlot("a", hcq.ArgKind.POINTER, "x", 8),)), "at byte 0 or later"),  # type: ignore[arg-type]
    (lambda s: s.load(args=(hcq.ArgSlot("a", hcq.ArgKind.INT, 0, "8"),)), "wanted an hcq.ArgSlot"),  # type: ignore[arg-type]
    (lambda s: s.load(kernarg_size=2**70), "kernel add, kernarg_size: wanted at most"),
    (lambda s: s.load(group_ns=2**63), "kernel add, group_ns: wanted at most"),
    (lambda s: s.a.visible_to([]), r"wanted an hcq.Device, seen \[\]"),
    (lambda _: Param("n", size="x"), "parameter n, size: wanted an int of at least 0, seen 'x'"),  # type: ignore[arg-type]
    (lambda s: s.n + "x", "wanted an int"),
    (lambda s: s.n >> -1, "wanted an int of at least 0"),
    (lambda s: s.device.load(None), "wanted an hcq.KernelImage, seen NoneType\nhint:"),
    (lambda s: s.load(code="text"), "kernel add: code is a str, not bytes"),
    (lambda s: s.load(arch=np.zeros(0)), "kernel add: arch is a ndarray, not str"),
    (lambda s: s.load(args=5), "kernel add: args is a int, not tuple"),
    (lambda s: s.load(args=("x",)), "kernel add: wanted an hcq.ArgSlot"),
    (lambda s: s.load(kernarg_size="x"), "kernel add, kernarg_size: wanted an int of at least 0, seen 'x'"),
    (lambda s: s.load(max_threads=0), "kernel add, max_threads: wanted an int of at least 1, seen 0"),
    (lambda s: s.load(shared_bytes=-1), "kernel add, shared_bytes: wanted an int of at least 0, seen -1"),
    (
        lambda s: s.load(args=(hcq.ArgSlot("p", hcq.ArgKind.POINTER, 0, 8, "q"),)),  # type: ignore[arg-type]
        "the access of p is 'q', not 'r', 'w' or 'rw'",
    ),
    (lambda _: hcq.Graph().add(None, None), "wanted a queue and a command buffer, seen None and None"),  # type: ignore[arg-type]
    (lambda s: hcq.Graph().add(s.device, s.record()), "wanted a queue and a command buffer"),
    (lambda s: hcq.Graph().add(s.queue, s.record(), after=5), "after= takes a list of nodes, not 5"),  # type: ignore[arg-type]
    (lambda s: hcq.Graph().add(s.queue, s.record(), after=[s.point]), "after= takes a list of nodes"),
]


@pytest.mark.parametrize(("call", "words"), [*RECORDED, *SUBMITTED, *MADE])
def test_a_wrong_call_is_refused_and_the_device_works_after_it(
    scene: Scene, call: Callable[[Any], object], words: str
):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        call(scene)
    assert not scene.device.closed
    assert not scene.a.closed
    queue = scene.queue
    queue.submit(queue.record().fill(scene.a, 0x07070707).barrier().copy(scene.b, scene.a)).wait()
    assert bytes(scene.b.host()[:4]) == b"\7\7\7\7"


def test_counts_of_a_launch_may_be_numbers_of_other_classes(scene: Scene):
    class Count:
        def __index__(self) -> int:
            return 1

    groups: Any = (Count(), 1, 1)
    commands = scene.record().exec(scene.program, scene.args, groups=groups, threads=ONE)
    assert commands.commands[0].groups == ONE


@pytest.mark.parametrize("bits", [32, 64])
def test_a_negative_number_is_written_in_twos_complement(scene: Scene, bits: int):
    scene.submit(scene.record().write(scene.a, -2, bits=bits)).wait()
    assert int.from_bytes(scene.a.host()[: bits // 8], "little", signed=True) == -2


def test_an_error_of_a_class_is_also_a_type_error(scene: Scene):
    with pytest.raises(TypeError) as found:
        scene.submit(None)
    assert isinstance(found.value, UsageTypeError)


def test_a_timeout_below_zero_has_passed(scene: Scene):
    with pytest.raises(hcq.SignalTimeout):
        scene.signal.wait(9, timeout_s=-1)
    scene.point.wait(timeout_s=-1)  # is reached
