"""Faults that validation must report; each is planted after a random legal program, on the same devices.

A fault is a function that does something illegal with a `Scene`. Its row has the class of the error and a
pattern of the message. A fault without an error, or with another error, is a finding.

Not here: legal programs (`queue_programs`). Next: `queues`, the command.
"""

from __future__ import annotations

import random
import re
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import hcq
from hcq.validate.guards import GUARD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.queue_kernels import Stage

BYTES: Final = 256
_ONE: Final = (1, 1, 1)
_WAIT_S: Final = 60.0
_GUARD_WORDS: Final = GUARD_BYTES // 4
_NEVER_S: Final = 0.2
"""Time limit, in seconds, of waits that nothing ends; validation reports them at once or after it."""


class Scene:
    """The objects of a fault: two compute queues, a copy queue, the kernel, and three buffers."""

    def __init__(self, stage: Stage, spec: hcq.BufferSpec, seed: int) -> None:
        self.r = random.Random(seed)  # noqa: S311 - programs, not secrets
        self.device = stage.devices[0]
        self.compute, self.copies = self.device.compute, self.device.copies[0]
        self.other = self.device.computes[-1] if len(self.device.computes) > 1 else self.copies
        self.mix = stage.mix[self.device]
        self.spec = spec
        self.a, self.b, self.c = (self.device.alloc(BYTES, spec, label=label) for label in ("a", "b", "c"))
        self.offset = 4 * self.r.randrange(0, 8)
        ready = self.compute.record().fill(self.a, 1).fill(self.b, 2).fill(self.c, 3)
        self.compute.submit(ready).wait(timeout_s=_WAIT_S)

    def exec(
        self, commands: hcq.CommandBuffer, out: hcq.Buffer, source: hcq.Buffer, groups: int = 4
    ) -> hcq.CommandBuffer:
        """Record the kernel on the first `groups` words of two buffers."""
        arguments = self.mix.args(out, source, self.r.randrange(1 << 31))
        return commands.exec(self.mix, arguments, groups=(groups, 1, 1), threads=_ONE)


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    plant: Callable[[Scene], object]
    error: type[Exception]
    names: str
    """A regular expression that the message must match, without regard to case."""


def _read_after_write(s: Scene) -> None:
    s.compute.submit(s.compute.record().fill(s.a, 1))
    s.copies.submit(s.copies.record().copy(s.b, s.a))


def _write_after_read(s: Scene) -> None:
    s.copies.submit(s.copies.record().copy(s.b, s.a))
    s.compute.submit(s.exec(s.compute.record(), s.a, s.c))


def _write_after_write(s: Scene) -> None:
    s.copies.submit(s.copies.record().fill(s.a.view(s.offset, 64), 5))
    s.compute.submit(s.compute.record().fill(s.a, 1))


def _older_point(s: Scene) -> None:
    early = s.compute.submit(s.compute.record().fill(s.b, 1))
    s.compute.submit(s.compute.record().fill(s.a, 1))
    s.copies.submit(s.copies.record().copy(s.c, s.a), after=[early])


def _signal_too_early(s: Scene) -> None:
    signal = s.device.signal()
    s.compute.submit(s.compute.record().signal(signal, 1).fill(s.a, 1))
    s.copies.submit(s.copies.record().wait(signal, 1).copy(s.b, s.a))


def _kernel_reads_unbarriered(s: Scene) -> None:
    s.compute.submit(s.exec(s.exec(s.compute.record(), s.b, s.a), s.c, s.b))


def _kernel_overwrites_unbarriered(s: Scene) -> None:
    s.compute.submit(s.exec(s.exec(s.compute.record(), s.b, s.a), s.a, s.c))


def _kernels_write_one_place(s: Scene) -> None:
    s.compute.submit(s.exec(s.exec(s.compute.record(), s.b, s.a), s.b.view(8), s.c))


def _graph_without_barrier(s: Scene) -> None:
    graph = hcq.Graph()
    source = graph.param("source", size=64)
    commands = s.exec(s.compute.record(), s.b, s.a)
    commands.exec(s.mix, s.mix.args(s.c, source, 1), groups=_ONE, threads=_ONE)
    graph.add(s.compute, commands)
    graph.compile().submit({source: s.b})


def _host_waits_for_nothing(s: Scene) -> None:
    s.device.signal(label="never").wait(1, timeout_s=_NEVER_S)


def _cycle(s: Scene) -> None:
    x, y = s.device.signal(label="x"), s.device.signal(label="y")
    first = s.compute.submit(s.compute.record().wait(x, 1).signal(y, 1))
    s.copies.submit(s.copies.record().wait(y, 1).signal(x, 1))
    first.wait(timeout_s=_NEVER_S)


def _waits_for_itself(s: Scene) -> None:
    x = s.device.signal(label="x")
    s.compute.submit(s.compute.record().wait(x, 1).signal(x, 1)).wait(timeout_s=_NEVER_S)


def _value_too_low(s: Scene) -> None:
    x = s.device.signal(label="x")
    s.compute.submit(s.compute.record().signal(x, 1))
    s.copies.submit(s.copies.record().wait(x, 2)).wait(timeout_s=_NEVER_S)


def _host_sets_what_queues_set(s: Scene) -> None:
    s.device.signal(label="x").value = 1


def _value_goes_back(s: Scene) -> None:
    x = s.device.signal(host_set=True, label="x")
    x.value = 5
    x.value = 4


def _closed_buffer(s: Scene) -> None:
    commands = s.compute.record().fill(s.a, 1)
    s.a.close()
    s.compute.submit(commands)


def _closed_argument(s: Scene) -> None:
    commands = s.exec(s.compute.record(), s.b, s.a)
    s.a.close()
    s.compute.submit(commands)


def _closed_program(s: Scene) -> None:
    commands = s.exec(s.compute.record(), s.b, s.a)
    s.mix.close()
    s.compute.submit(commands)


def _closed_in_a_graph(s: Scene) -> None:
    graph = hcq.Graph()
    graph.add(s.compute, s.compute.record().fill(s.a, 1))
    executable = graph.compile()
    s.a.close()
    executable.submit({})


def _copy_too_long(s: Scene) -> None:
    s.compute.submit(s.compute.record().copy(s.a, s.b, BYTES + 4))


def _fill_outside(s: Scene) -> None:
    graph = hcq.Graph()
    size = graph.param("size", bits=32)
    graph.add(s.compute, s.compute.record().fill(s.a, 1, size))
    graph.compile().submit({size: BYTES + 64})


def _fill_unaligned(s: Scene) -> None:
    s.compute.submit(s.compute.record().fill(s.a.view(2, 8), 1))


def _write_unaligned(s: Scene) -> None:
    s.compute.submit(s.compute.record().write(s.a.view(4 + 4 * 2 * s.r.randrange(4), 8), 1, bits=64))


def _overlapping_copy(s: Scene) -> None:
    s.compute.submit(s.compute.record().copy(s.a.view(8, 64), s.a.view(s.offset, 64)))


def _too_many_threads(s: Scene) -> None:
    s.compute.submit(
        s.compute.record().exec(s.mix, s.mix.args(s.a, s.b, 1), groups=_ONE, threads=(1 << 20, 1, 1))
    )


def _no_groups(s: Scene) -> None:
    s.exec(s.compute.record(), s.a, s.b, groups=0)


def _pointer_outside(s: Scene) -> None:
    graph = hcq.Graph()
    out = graph.param("out", size=16)
    commands = s.compute.record().exec(s.mix, s.mix.args(out + BYTES, s.b, 1), groups=_ONE, threads=_ONE)
    graph.add(s.compute, commands)
    graph.compile().submit({out: s.a})


def _kernel_on_a_copy_queue(s: Scene) -> None:
    s.exec(s.copies.record(), s.a, s.b)


def _recorded_for_another_kind(s: Scene) -> None:
    s.copies.submit(s.compute.record().fill(s.a, 1))


def _arguments_of_another_kernel(s: Scene) -> None:
    other = s.device.load(s.mix.image)
    s.compute.record().exec(other, s.mix.args(s.a, s.b, 1), groups=_ONE, threads=_ONE)


def _missing_parameter(s: Scene) -> None:
    graph = hcq.Graph()
    value = graph.param("value", bits=32)
    graph.add(s.compute, s.compute.record().fill(s.a, value))
    graph.compile().submit({})


def _parameter_too_small(s: Scene) -> None:
    graph = hcq.Graph()
    out = graph.param("out", size=BYTES)
    commands = s.compute.record().exec(s.mix, s.mix.args(out, s.b, 1), groups=_ONE, threads=_ONE)
    graph.add(s.compute, commands)
    graph.compile().submit({out: s.a.view(0, 16)})


def _number_for_a_pointer(s: Scene) -> None:
    s.mix.args(12345, s.b, 1)


def _number_too_wide(s: Scene) -> None:
    s.mix.args(s.a, s.b, 1 << 40)


def _foreign_buffer(s: Scene) -> None:
    with hcq.open(s.device.info.driver, validate=True) as other:
        try:
            s.compute.submit(s.compute.record().fill(other.alloc(64, s.spec), 1))
        finally:
            s.device.sync()


def _point_for_a_list(s: Scene) -> None:
    point = s.compute.submit(s.compute.record())
    s.copies.submit(s.copies.record(), after=point)  # type: ignore[arg-type]  # the fault


def _wrong_slots(s: Scene) -> None:
    image = s.mix.image
    slots = (*image.args[:2], replace(image.args[2], offset=12, size=8))
    s.device.load(replace(image, args=slots, kernarg_size=20))


def _overrun(s: Scene) -> None:
    words = BYTES // 4 + 1 + s.r.randrange(_GUARD_WORDS)
    source = s.device.alloc(4 * words, s.spec)
    s.compute.submit(s.exec(s.compute.record(), s.a, source, words)).wait(timeout_s=_WAIT_S)
    s.device.sync()


FAULTS: Final = (
    Fault("copy of memory that another queue writes", _read_after_write, hcq.UsageError, "hazard"),
    Fault("kernel that writes memory that another queue reads", _write_after_read, hcq.UsageError, "hazard"),
    Fault("two queues write the same memory", _write_after_write, hcq.UsageError, "hazard"),
    Fault("a point that is too old", _older_point, hcq.UsageError, "hazard"),
    Fault("a signal set before the write", _signal_too_early, hcq.UsageError, "hazard"),
    Fault("kernel reads without a barrier", _kernel_reads_unbarriered, hcq.UsageError, "missing barrier"),
    Fault("kernel overwrites without a barrier", _kernel_overwrites_unbarriered, hcq.UsageError,
          "missing barrier"),
    Fault("two kernels write the same memory", _kernels_write_one_place, hcq.UsageError, "missing barrier"),
    Fault("graph without a barrier", _graph_without_barrier, hcq.UsageError, "missing barrier"),
    Fault("the host waits for a value that is never set", _host_waits_for_nothing, hcq.HcqError, "never"),
    Fault("two queues wait for each other", _cycle, hcq.HcqError, r"\bx\b[\s\S]*\by\b|\by\b[\s\S]*\bx\b"),
    Fault("a submission waits for its own signal", _waits_for_itself, hcq.HcqError, r"\bx\b"),
    Fault("a wait for a higher value than is ever set", _value_too_low, hcq.HcqError, r"\bx\b"),
    Fault("the host sets a signal of queues", _host_sets_what_queues_set, hcq.UsageError, "host_set"),
    Fault("a signal whose value decreases", _value_goes_back, hcq.UsageError, "only grow|go back"),
    Fault("a closed buffer", _closed_buffer, hcq.UsageError, "closed"),
    Fault("a closed argument", _closed_argument, hcq.UsageError, "closed"),
    Fault("a closed kernel", _closed_program, hcq.UsageError, "closed"),
    Fault("a closed buffer in a graph", _closed_in_a_graph, hcq.UsageError, "closed"),
    Fault("a copy longer than its buffers", _copy_too_long, hcq.UsageError, "bytes"),
    Fault("a fill whose parameter is too large", _fill_outside, hcq.UsageError, "outside"),
    Fault("an unaligned fill", _fill_unaligned, hcq.UsageError, "align|multiple"),
    Fault("an unaligned write", _write_unaligned, hcq.UsageError, "align|multiple"),
    Fault("a copy onto itself", _overlapping_copy, hcq.UsageError, "overlap"),
    Fault("too many threads", _too_many_threads, hcq.UsageError, "threads"),
    Fault("no groups", _no_groups, hcq.UsageError, "groups"),
    Fault("a pointer parameter outside its buffer", _pointer_outside, hcq.UsageError, "outside"),
    Fault("a kernel for a copy queue", _kernel_on_a_copy_queue, hcq.UsageError, "queue"),
    Fault("commands for another kind of queue", _recorded_for_another_kind, hcq.UsageError, "queue"),
    Fault("arguments of another kernel", _arguments_of_another_kernel, hcq.UsageError, "arguments"),
    Fault("a parameter without a value", _missing_parameter, hcq.UsageError, "value"),
    Fault("a buffer too small for its parameter", _parameter_too_small, hcq.UsageError, "out"),
    Fault("a number for a pointer", _number_for_a_pointer, hcq.UsageError, "out"),
    Fault("a number too wide for its slot", _number_too_wide, hcq.UsageError, "term"),
    Fault("a buffer of another device", _foreign_buffer, hcq.UsageError, "see|another device|opened"),
    Fault("a point instead of a list of points", _point_for_a_list, hcq.UsageError, "after="),
    Fault("a kernel that overruns its buffer", _overrun, hcq.UsageError, "past the end"),
    Fault("argument slots that differ from the image's", _wrong_slots, hcq.UsageError,
          "slot|term|argument|kernarg"),
)  # fmt: skip


def misreported(seed: int, stage: Stage, spec: hcq.BufferSpec) -> str:
    """Plant the seed's fault on a stage; return why its report is wrong, or ""."""
    fault = FAULTS[seed % len(FAULTS)]
    try:
        fault.plant(Scene(stage, spec, seed))
    except fault.error as error:
        if re.search(fault.names, str(error), re.IGNORECASE):
            return ""
        return f"seed {seed}: {fault.name}: another error: {error}"
    except Exception:  # noqa: BLE001 - any other error is a finding
        return f"seed {seed}: {fault.name}: wanted {fault.error.__name__}\n{traceback.format_exc(limit=-3)}"
    return f"seed {seed}: {fault.name}: nothing was reported"
