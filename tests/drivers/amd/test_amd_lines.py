"""Source lines of code objects: linked ones of Triton, unlinked ones of LLVM, and files without any."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from compiler.llvm import Machine, emit_object
from drivers.amd import code, lines
from drivers.amd.faults import located
from drivers.amd.layouts import chips
from drivers.amd.layouts.events import QueueException
from drivers.elf import Elf
from hcq.driver import QueueKind
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.drivers.amd.opened import emulated, image, opened
from tests.guests import build

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.amd.code import AmdKernelFacts, Object

IR = """
define amdgpu_kernel void @k(ptr addrspace(1) %out, i32 %n) #0 !dbg !5 {
  store volatile i32 %n, ptr addrspace(1) %out, !dbg !8
  store volatile i32 1, ptr addrspace(1) %out, !dbg !9
  store volatile i32 2, ptr addrspace(1) %out, !dbg !12
  ret void, !dbg !13
}
attributes #0 = { "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-ptr" "amdgpu-no-dispatch-id" }
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: KIND)
!1 = !DIFile(filename: "k.cl", directory: "/src/kernels")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 7, !"Dwarf Version", i32 VERSION}
!4 = !DISubroutineType(types: !{})
!5 = distinct !DISubprogram(name: "k", file: !1, line: 3, type: !4, unit: !0, spFlags: DISPFlagDefinition)
!6 = !DIFile(filename: "lib/help.h", directory: "/src/include")
!7 = distinct !DISubprogram(name: "h", file: !6, line: 70, type: !4, unit: !0, spFlags: DISPFlagDefinition)
!8 = !DILocation(line: 4, column: 3, scope: !5)
!9 = !DILocation(line: 71, column: 3, scope: !7, inlinedAt: !10)
!10 = distinct !DILocation(line: 80, column: 3, scope: !7, inlinedAt: !11)
!11 = distinct !DILocation(line: 5, column: 3, scope: !5)
!12 = !DILocation(line: 0, column: 0, scope: !5)
!13 = !DILocation(line: 7, column: 1, scope: !5)
"""


def compiled(version: int = 5, kind: str = "FullDebug") -> bytes:
    ir = IR.replace("VERSION", str(version)).replace("KIND", kind)
    return emit_object(ir, Machine("amdgcn-amd-amdhsa", "gfx1100", ""))


def read(data: bytes, name: str = "k", arch: str = "gfx1100") -> tuple[Object, AmdKernelFacts]:
    return code.read(data, name, chips.CHIPS[arch])


def places(found: Object, kernel: AmdKernelFacts, size: int) -> list[str]:
    """Return the places of the code's words, each once in order."""
    every = (
        lines.source_place(found.elf, found.placement, at)
        for at in range(kernel.entry, kernel.entry + size, 4)
    )
    return list(dict.fromkeys(every))


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kind", ["FullDebug", "LineTablesOnly"])
def test_an_unlinked_object_has_its_lines_and_those_of_calls_that_were_inlined(version: int, kind: str):
    found, kernel = read(compiled(version, kind))
    symbol = found.elf.symbol("k")
    assert symbol is not None
    seen = places(found, kernel, symbol.size)
    assert [one for one in seen if one] == [f"/src/kernels/k.cl:{line}" for line in (4, 5, 7)]


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
def test_a_linked_object_of_triton_has_the_lines_of_its_kernel(target: str):
    facts, data = build.read(build.DATA / f"triton_{target}.tar.xz")["softmax"]
    found, kernel = read(data, facts["entry"], target)
    seen = set(places(found, kernel, 512)) - {""}
    assert {one.rpartition(":")[0].rpartition("/")[2] for one in seen} == {"triton_kernels.py"}
    assert len(seen) > 3


def test_an_object_without_debug_sections_has_no_lines():
    found, kernel = read(image("gfx1100").code)
    assert not lines.source_place(found.elf, found.placement, kernel.entry)


def test_an_address_outside_the_code_has_no_line():
    found, kernel = read(compiled())
    assert not lines.source_place(found.elf, found.placement, kernel.entry + (1 << 20))


def test_malformed_debug_sections_are_an_error_that_says_so():
    data = bytearray(compiled())
    section = Elf(bytes(data)).section(".debug_line")
    assert section is not None
    data[section.offset : section.offset + section.size] = b"\x70" * section.size
    found, kernel = read(bytes(data))
    with pytest.raises(ValueError, match="malformed debug sections"):
        lines.source_place(found.elf, found.placement, kernel.entry)


@pytest.mark.parametrize(
    ("make", "source"),
    [(compiled, "/src/kernels/k.cl:4"), (lambda: image("gfx1100").code, "which has no source line")],
    ids=["with lines", "without lines"],
)
def test_a_fault_names_kernel_and_line_of_the_program_counter_that_is_reported(
    make: Callable[[], bytes], source: str
):
    kernel = emulated()
    with contextlib.closing(opened(kernel)) as device:
        slots = (ArgSlot("out", ArgKind.POINTER, 0, 8, "w"), ArgSlot("n", ArgKind.INT, 8, 4))
        program = device.load(KernelImage(name="k", arch="gfx1100", code=make(), args=slots, kernarg_size=16))
        entry = program.what.entry_va
        kernel.told = (f"a race; pc {entry:#x}\nalso: another; pc 0x10",)
        device.ring(QueueKind.COMPUTE, 0).queue.exceptions[0] = 1 << QueueException.WAVE_ABORT - 1
        report = device.fault()
        assert report is not None
        assert report.kernel == "k"
        assert source in report.source
        place = f"; source: {source}" if ":" in source else ""
        assert report.reports == (f"a race{place}; kernel: k; pc {entry:#x}\nalso: another; pc 0x10",)
        assert located(kernel.told, []) == ((), [])
