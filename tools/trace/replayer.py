"""The replay of a capture: its submissions again, in the recorded order, on devices of the same architecture.

Memory that the host wrote is written again, and what the host read is compared by its digest.

Not here: the text of a capture (`text`). Next: `hcq.capture.log`, the lines that are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import hcq
from hcq import commands as neutral
from hcq.capture.log import digest, unpack
from hcq.errors import UnsupportedError
from tools.trace.text import Symbols, float_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Record = dict[str, Any]

TIMEOUT_S = 600.0
"""The longest wait for one submission, in seconds."""


@dataclass(slots=True)
class Outcome:
    """What a replay has found."""

    submissions: int = 0
    """Number of submissions that were sent."""
    compared: int = 0
    """Number of digests that were compared."""
    differences: list[str] = field(default_factory=list)
    """A line for each buffer whose contents are not those that the host read."""
    fault: str = ""
    """The error that ended the replay; empty: none."""


class Replay:
    """One replay. It owns its devices until `close`; a context manager.

    `device` is the name to open for every device of the capture; None: the recorded names.
    `after_each` is called after each submission is done, with its number and {buffer: digest} of the memory
    that it may have written; None: submissions overlap as they did.
    """

    def __init__(
        self,
        records: Iterable[Record],
        *,
        device: str | None = None,
        after_each: Callable[[int, dict[int, str]], bool] | None = None,
    ) -> None:
        self._records = list(records)
        self._name = device
        self._after_each = after_each
        self._symbols = Symbols()
        self._devices: dict[int, hcq.Device] = {}
        self._buffers: dict[int, hcq.Buffer] = {}
        self._programs: dict[int, hcq.Program] = {}
        self._signals: dict[int, hcq.Signal] = {}
        self._points: dict[int, hcq.Point] = {}
        self._dropped = {record["n"] for record in self._records if record["t"] == "dropped"}
        self.outcome = Outcome()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the devices; work that does not end is left to the driver. Idempotent."""
        for device in self._devices.values():
            device.close()

    def run(self) -> Outcome:
        """Replay all lines; return what was found. A fault or a lost wait ends it, and is in the outcome.

        Raises `UnsupportedError` for a device of another architecture, or one that is not here.
        """
        try:
            for record in self._records:
                self._symbols.take(record)
                if not self._step(record):
                    break
            for device in self._devices.values():
                device.sync(timeout_s=TIMEOUT_S)
        except (hcq.DeviceFault, hcq.SignalTimeout) as error:
            self.outcome.fault = str(error)
        return self.outcome

    def _step(self, record: Record) -> bool:
        """Replay one line; return whether to go on."""
        kind = record["t"]
        if kind == "memory":
            if not record["held"]:
                self._await(record)
            data = unpack(record["bytes"])
            self._buffer(record["buffer"]).host()[: len(data)] = data
        elif kind == "set":
            signal = self._signal(record["signal"])
            signal.value = record["value"] + self._symbols.signals[record["signal"]]["base"]
        elif kind == "submit" and record["n"] not in self._dropped:
            return self._submit(record)
        elif kind == "seen":
            self._await(record)
            self.outcome.compared += 1
            buffer = self._buffer(record["buffer"])
            if digest(buffer.host()) != record["digest"]:
                name = self._symbols.pointer([record["buffer"], 0])
                text = f"{name} after submission {self.outcome.submissions} is not what the host read"
                self.outcome.differences.append(text)
        elif kind == "closed" and record["buffer"] in self._buffers:
            self._buffers.pop(record["buffer"]).close()
        return True

    def _await(self, record: Record) -> None:
        """Wait for what was done then: later work may wait for the host. In old captures: for all."""
        done = [self._symbols.reached(*one) for one in record["done"]] if "done" in record else self._points
        for point in [self._points[number] for number in done if number in self._points]:
            point.wait(timeout_s=TIMEOUT_S)

    def _submit(self, record: Record) -> bool:
        device = self._device(record["device"])
        queue = next(
            (queue for queue in device.queues if _role(queue.label) == _role(record["queue"])), device.compute
        )
        buffer = queue.record(label=record["label"])
        for command in record["commands"]:
            buffer.add(self._command(command, device))
        point = self._points[record["n"]] = queue.submit(buffer, timeout_s=TIMEOUT_S)
        self.outcome.submissions += 1
        if self._after_each is None:
            return True
        point.wait(timeout_s=TIMEOUT_S)
        return self._after_each(record["n"], self._written(buffer.commands))

    def _written(self, commands: Iterable[neutral.Command]) -> dict[int, str]:
        """Return {buffer: digest} of the memory that commands may have written."""
        roots = {
            (buffer := touch.pointer).root or buffer  # type: ignore[union-attr]  # no Param in a replay
            for command in commands
            for touch in command.touches()
            if "w" in touch.access
        }
        return {n: digest(contents(b)) for n, b in self._buffers.items() if b in roots}

    def _device(self, number: int) -> hcq.Device:
        if number not in self._devices:
            wanted = self._symbols.devices[number]
            device = self._devices[number] = hcq.open(self._name or wanted["name"])
            arch = device.info.arch
            if arch != wanted["arch"]:
                raise UnsupportedError(
                    f"the capture is of {wanted['arch']}, {device.name} is {arch}\n"
                    "hint: --device names a device of that architecture; code runs on no other"
                )
        return self._devices[number]

    def _buffer(self, number: int) -> hcq.Buffer:
        if number not in self._buffers:
            record = self._symbols.buffers[number]
            spec = record["spec"] | {"place": hcq.Place[record["spec"]["place"]]}
            device = self._device(record["device"])
            self._buffers[number] = device.alloc(
                record["size"], hcq.BufferSpec(**spec), label=record["label"]
            )
        return self._buffers[number]

    def _pointer(self, pointer: list[int], device: hcq.Device) -> hcq.Buffer:
        buffer = self._buffer(pointer[0])
        buffer.map_to(device)
        return buffer.view(pointer[1]) if pointer[1] else buffer

    def _signal(self, number: int) -> hcq.Signal:
        if number not in self._signals:
            record = self._symbols.signals[number]
            device = next(iter(self._devices.values()))
            self._signals[number] = device.signal(record["value"], host_set=record["host_set"])
        return self._signals[number]

    def _program(self, number: int, device: hcq.Device) -> hcq.Program:
        if number not in self._programs:
            image = dict(self._symbols.programs[number]["image"])
            image["code"] = unpack(image["code"])
            slots = [slot | {"kind": hcq.ArgKind[slot["kind"]]} for slot in image["args"]]
            image["args"] = tuple(hcq.ArgSlot(**slot) for slot in slots)
            self._programs[number] = device.load(hcq.KernelImage(**image))
        return self._programs[number]

    def _command(self, record: Record, device: hcq.Device) -> neutral.Command:
        """Return a recorded command, with this replay's objects."""
        kind: type[neutral.Command] = getattr(neutral, record["c"])
        if kind is neutral.Exec:
            return self._launch(record, device)
        if kind is neutral.Wait:
            return self._wait(record)
        if kind is neutral.Timestamp:
            return neutral.Timestamp(device.stamp())
        pointers = {part.field for part in kind.memory}
        given = dict(record)
        del given["c"]
        for name in pointers:
            given[name] = self._pointer(given[name], device)
        if "signal" in given:
            given["signal"] = self._signal(given["signal"])
        if "scope" in given:
            given["scope"] = neutral.Scope(given["scope"])
        return kind(**given)

    def _wait(self, record: Record) -> neutral.Command:
        """Return the wait for a recorded submission, or for a signal of the user."""
        number, value = record["signal"], record["value"]
        raiser = self._symbols.raiser(number, value)
        if raiser is not None:
            point = self._points[raiser]
            return neutral.Wait(point.signal, point.value - point.signal.base)
        return neutral.Wait(self._signal(number), value)

    def _launch(self, record: Record, device: hcq.Device) -> neutral.Command:
        program = self._program(record["program"], device)
        values = [
            self._pointer(value, device)
            if slot.kind is hcq.ArgKind.POINTER
            else float_of(value, slot.size)
            if slot.kind is hcq.ArgKind.FLOAT
            else value
            for slot, value in zip(program.image.args, record["args"], strict=True)
        ]
        groups, threads, cluster = ((record[name] or (0, 0, 0)) for name in ("groups", "threads", "cluster"))
        clusters = _three(cluster) if record["cluster"] else None
        return neutral.Exec(program, program.args(*values), _three(groups), _three(threads), clusters)


def _three(numbers: Sequence[int]) -> hcq.Dim3:
    x, y, z = numbers
    return x, y, z


def _role(label: str) -> str:
    """Return "compute 0" of the label of a queue."""
    return label.partition(" of ")[0]


def contents(buffer: hcq.Buffer) -> bytes:
    """Return the bytes of a buffer; memory that the host cannot access is copied first."""
    device = buffer.device
    assert isinstance(device, hcq.Device), "buffers of a replay belong to devices"
    if buffer.chunk.allocation.host is not None:
        return bytes(buffer.host())
    spec = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)
    with device.alloc(buffer.size, spec) as staging:
        queue = device.copies[0] if device.copies else device.compute
        queue.submit(queue.record().copy(staging, buffer)).wait(timeout_s=TIMEOUT_S)
        return bytes(staging.host())
