"""Golden streams of the NVIDIA driver, decoded: bring-up, a launch, a copy, waits between queues, a graph.

    python -m tests.support.nv.golden tests/golden      write them again; review every difference

They are made on the emulated kernel. Host addresses, which differ between runs, are named in order of
appearance.

Not here: the emulated kernel that records its calls (`recorded`), decoding (`drivers.nv.decode`).
"""

from __future__ import annotations

import re
import struct
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final

from drivers.kernel import view_at
from drivers.nv import decode
from drivers.nv.decode import fields_text
from drivers.nv.layouts.chips import CHIPS
from drivers.nv.layouts.cubin import (
    EM_CUDA,
    OSABI_13,
    InfoAttribute,
    InfoFormat,
    InfoKparam,
    InfoParamCbank,
    InfoRecord,
    InfoSymbolValue,
)
from drivers.nv.layouts.qmd import QMDS
from drivers.nv.qmd import DIALECTS
from hcq.device import Device
from hcq.driver import QueueKind
from hcq.graph import Graph
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.limits import HANG_S
from tests.support.nv.recorded import RecordedKernel, driver_of
from tools.arguments import command, made_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from emulator.nv.engines.channel import ChannelRun
    from hcq.program import Program
    from tests.support.nv.recorded import Doorbells

_HOST: Final = re.compile(r"0x[1-9a-f][0-9a-f]{10,11}\b")
"""Host addresses of this process; addresses that the driver chooses have ten digits."""


_PTX: Final = """.version 8.7
.target sm_{sm}
.address_size 64
.visible .entry {name}(.param .align 8 .b8 all[{parameters}])
{{
 ret;
}}
"""


def small_cubin(
    name: str,
    sm: int,
    parameters: int,
    *,
    registers: int = 8,
    stack: int = 0,
    placed: Sequence[tuple[int, int]] = (),
    records: Mapping[InfoAttribute, bytes] | None = None,
) -> bytes:
    """Return a cubin with one kernel that does nothing: 128 zero bytes as code, and PTX for emulated GPUs.

    `placed` has offset and bytes of each parameter, in order; `records` are further ones of the kernel.
    """
    base = CHIPS[f"sm_{sm}"].bank0.SIZE
    info = _record(InfoAttribute.REGCOUNT, InfoSymbolValue.pack(symbol=1, value=registers))
    info += _record(InfoAttribute.MIN_STACK_SIZE, InfoSymbolValue.pack(symbol=1, value=stack))
    own = _record(InfoAttribute.PARAM_CBANK, InfoParamCbank.pack(symbol=1, offset=base, size=parameters))
    for ordinal, (at, size) in reversed(tuple(enumerate(placed))):
        one = InfoKparam(index=0, ordinal=ordinal, offset=at, size=size)
        own += _record(InfoAttribute.KPARAM_INFO, one.to_bytes())
    own += b"".join(_record(attribute, payload) for attribute, payload in (records or {}).items())
    strings = f"\0{name}\0".encode()
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0x10, 5, 0, 128)
    ptx = _PTX.format(sm=sm, name=name, parameters=parameters)
    alloc = 2
    parts: list[tuple[str, int, int, bytes, int, int, int, int]] = [
        (".strtab", 3, 0, strings, 0, 0, 1, 0),
        (".symtab", 2, 0, symbols, 1, 1, 8, 24),
        (".nv.info", 0x70000000, 0, info, 2, 0, 4, 0),
        (f".nv.info.{name}", 0x70000000, 0, own, 2, 5, 4, 0),
        (f".text.{name}", 1, alloc | 4, bytes(128), 2, 0, 128, 0),
        (f".nv.constant0.{name}", 1, alloc, bytes(base + parameters), 0, 5, 4, 0),
        (".nv_debug_ptx_txt", 1, 0, ptx.encode(), 0, 0, 1, 0),
    ]
    return _elf(sm, parts)


def _record(attribute: int, payload: bytes) -> bytes:
    return InfoRecord.pack(format=InfoFormat.SVAL, attribute=attribute, value=len(payload)) + payload


def _elf(sm: int, parts: list[tuple[str, int, int, bytes, int, int, int, int]]) -> bytes:
    names = b"\0" + b"".join(part[0].encode() + b"\0" for part in parts) + b".shstrtab\0"
    body, heads = bytearray(64), [bytes(64)]
    for name, kind, flags, data, link, info, align, entry in (*parts, (".shstrtab", 3, 0, names, 0, 0, 1, 0)):
        body += bytes(-len(body) % align)
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        heads.append(
            struct.pack("<IIQQQQIIQQ", at, kind, flags, 0, len(body), len(data), link, info, align, entry)
        )
        body += data
    body += bytes(-len(body) % 8)
    ident = b"\x7fELF\x02\x01\x01" + bytes((OSABI_13, 8)) + bytes(7)
    head = struct.pack(
        "<HHIQQQIHHHHHH", 2, EM_CUDA, 1, 0, 0, len(body), sm << 8, 64, 0, 0, 64, len(heads), len(heads) - 1
    )
    body[:64] = ident + head
    return bytes(body) + b"".join(heads)


def sample(arch: str, sm: int, *, name: str = "axpy", registers: int = 8, stack: int = 0) -> KernelImage:
    """Return an image with three arguments: two pointers and a number."""
    args = (
        ArgSlot("out", ArgKind.POINTER, 0, 8, "w"),
        ArgSlot("x", ArgKind.POINTER, 8, 8, "r"),
        ArgSlot("n", ArgKind.INT, 16, 4),
    )
    code = small_cubin(name, sm, 20, registers=registers, stack=stack)
    return KernelImage(name=name, arch=arch, code=code, args=args, kernarg_size=24)


class Names:
    """Names of host addresses, in order of appearance."""

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}

    def of(self, va: int) -> str:
        """Return the name of an address."""
        return self._seen.setdefault(va, f"host{len(self._seen)}")

    def replace(self, text: str) -> str:
        """Replace all host addresses in a text with their names."""
        return _HOST.sub(lambda match: self.of(int(match[0], 16)), text)


_PAIRS: Final = {"SEM_ADDR_LO": False, "SET_SEMAPHORE_A": True}
"""First word of an address pair -> whether it is the upper half."""


def stream_text(kernel: RecordedKernel, run: ChannelRun, words: list[int], names: Names) -> Iterable[str]:
    """Yield a line for each method of a segment.

    The two halves of a semaphore's address are one named address.
    """
    writes = list(decode.methods(words, wide=run.gpu.profile.wide))
    skip = False
    for index, write in enumerate(writes):
        if skip:
            skip = False
            continue
        if write.name in _PAIRS:
            other = writes[index + 1]
            upper, lower = (write, other) if _PAIRS[write.name] else (other, write)
            va = upper.data << 32 | lower.data
            host = kernel.host_of(run, va)
            shown = f"{va:#x}" if not host >> 40 else names.of(host) + ", by its alias" * (host != va)
            yield f"  {str(write).split(' ', 1)[0]:8} {write.name}, {other.name} = {shown}"
            skip = True
            continue
        yield f"  {write}"
        if write.name == "SEND_PCAS_A":
            yield from _descriptor(run, write.data << 8, names)


def _descriptor(run: ChannelRun, va: int, names: Names) -> Iterable[str]:
    row = run.gpu.profile.generation
    layout, dialect = QMDS[row.qmd], DIALECTS[row.qmd]
    fields = layout.from_bytes(view_at(va, layout.SIZE))
    yield "           descriptor:"
    for part in _PART.findall(fields_text(fields)):
        yield f"             {names.replace(part)}"
    lower, upper, size = (
        getattr(fields, name)[0] for name in (*dialect.bank, "CONSTANT_BUFFER_SIZE_SHIFTED4")
    )
    bank = run.gpu.profile.chip.bank0
    memory = view_at((upper << 32 | lower) << dialect.bank_shift, 16 * size)
    yield "           constant bank 0:"
    for part in _PART.findall(fields_text(bank.from_bytes(memory[: bank.SIZE]))):
        yield f"             {part}"
    words = memory[bank.SIZE :].cast("I").tolist()
    yield f"             from {bank.SIZE:#x}, arguments: {' '.join(f'{word:#x}' for word in words)}"


_PART: Final = re.compile(r"\S+=(?:\[[^\]]*\]|\S+)")
"""One field in the text of several."""


def _submission(kernel: RecordedKernel, run: ChannelRun, raw: list[list[int]], names: Names) -> Iterable[str]:
    yield f"doorbell of engine {kernel.doorbells.channel(run).group.engine}"
    for words in raw:
        yield f" entry of {len(words)} words"
        yield from stream_text(kernel, run, words, names)


def _play(
    act: Callable[[Device, Program, Doorbells], None],
    kernel: RecordedKernel | None = None,
    *,
    cold: bool = False,
    stack: int = 0,
) -> str:
    """Return the decoded submissions of `act`; with `cold` the first one includes the setup of the queue."""
    kernel = kernel or RecordedKernel()
    sm = kernel.machine.gpus[0].profile.chip.sm
    with closing(Device(driver_of(kernel).open(0, None))) as device:
        program = device.load(sample(device.info.arch, sm, stack=stack))
        if not cold:
            device.compute.submit(device.compute.record().barrier()).wait(timeout_s=HANG_S)
        names = Names()
        lines: list[str] = []
        kernel.doorbells.watch = lambda run, raw: lines.extend(_submission(kernel, run, raw, names))
        act(device, program, kernel.doorbells)
    return "\n".join(lines) + "\n"


def launch(kernel: RecordedKernel | None = None, *, cold: bool = False, stack: int = 0) -> str:
    """Return the stream of one launch."""

    def act(device: Device, program: Program, doorbells: Doorbells) -> None:
        del doorbells
        out, x = device.alloc(4096), device.alloc(4096)
        queue = device.compute
        commands = queue.record().exec(
            program, program.args(out, x, 7), groups=(4, 2, 1), threads=(128, 1, 1)
        )
        queue.submit(commands).wait(timeout_s=HANG_S)

    return _play(act, kernel, cold=cold, stack=stack)


def copy() -> str:
    """Return the stream of one copy and one fill."""

    def act(device: Device, program: Program, doorbells: Doorbells) -> None:
        del program, doorbells
        out, x = device.alloc(4096), device.alloc(4096)
        queue = device.copies[0]
        queue.submit(queue.record().copy(out, x).fill(x, 0x11223344)).wait(timeout_s=HANG_S)

    return _play(act)


def cross_queue() -> str:
    """Return the streams of a timed kernel that waits for a slow copy, and a copy that waits for it."""

    def act(device: Device, program: Program, doorbells: Doorbells) -> None:
        out, x = device.alloc(4096), device.alloc(4096)
        compute, copies = device.compute, device.copies[0]
        doorbells.stalled = True
        first = copies.submit(copies.record().copy(x, out))
        commands = compute.record()
        with commands.span("kernel"):
            commands.exec(program, program.args(out, x, 7), groups=(4, 1, 1), threads=(64, 1, 1))
        second = compute.submit(commands, after=[first])
        last = copies.submit(copies.record().copy(x, out), after=[second])
        doorbells.resume()
        last.wait(timeout_s=HANG_S)

    return _play(act)


def graph() -> str:
    """Return the streams of a graph of ten dependent kernels, replayed twice."""

    def act(device: Device, program: Program, doorbells: Doorbells) -> None:
        del doorbells
        buffers = [device.alloc(4096) for _ in range(2)]
        graph = Graph()
        opened = graph.param("x")
        commands = device.compute.record()
        for i in range(10):
            source = opened if i == 0 else buffers[i % 2]
            args = program.args(buffers[(i + 1) % 2], source, i)
            commands.exec(program, args, groups=(i + 1, 1, 1), threads=(32, 1, 1)).barrier()
        graph.add(device.compute, commands)
        executable = graph.compile()
        given = device.alloc(4096)
        for _ in range(2):
            executable.submit({opened: given}).wait(timeout_s=HANG_S)

    return _play(act)


def bringup(kernel: RecordedKernel) -> str:
    """Return the calls of opening a device, creating each kind of ring and closing, with ring words."""
    names = Names()
    kernel.doorbells.watch = lambda run, raw: kernel.lines.extend(_submission(kernel, run, raw, names))
    with closing(driver_of(kernel).open(0, None)) as device:
        device.ring(QueueKind.COMPUTE, 0)
        device.ring(QueueKind.COPY, 0)
        kernel.settle()
    uuid = repr(kernel.machine.gpus[0].uuid)
    return "\n".join(names.replace(line).replace(uuid, "UUID") for line in kernel.lines) + "\n"


def _ampere() -> RecordedKernel:
    return RecordedKernel("sm_80", driver="570")


def _blackwell() -> RecordedKernel:
    return RecordedKernel("sm_120", driver="595")


GOLDEN: Final[dict[str, Callable[[], str]]] = {
    "nv_bringup_hopper_580": lambda: bringup(RecordedKernel()),
    "nv_bringup_ampere_570": lambda: bringup(_ampere()),
    "nv_bringup_blackwell_595": lambda: bringup(_blackwell()),
    "nv_launch": launch,
    "nv_launch_ampere": lambda: launch(_ampere()),
    "nv_launch_blackwell": lambda: launch(_blackwell()),
    "nv_launch_first": lambda: launch(cold=True, stack=0x100),
    "nv_copy": copy,
    "nv_cross_queue": cross_queue,
    "nv_graph": graph,
}
"""File name -> the function that returns its text."""


def main(arguments: list[str]) -> int:
    """Write the files into a folder; return the exit status."""
    parser = command("tests.support.nv.golden", __doc__)
    parser.add_argument("folder", type=made_folder, metavar="FOLDER", help="where the files are written")
    folder = parser.parse_args(arguments).folder
    for name, make in GOLDEN.items():
        (folder / f"{name}.txt").write_text(make())
        sys.stderr.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
