"""Code objects of AMD GPUs that others compiled: those that call the host are refused at the load."""

import numpy as np
import pytest
from llvmlite import binding as llvm

import hcq
import interop
from hcq.errors import DeviceFault, UnsupportedError
from interop import sanitize

KERNEL = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @fill(ptr addrspace(1) %out, i32 %n) ATTRIBUTES {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %n, ptr addrspace(1) %p LINE
  ret void
}
"""
UNUSED = ("multigrid-sync-arg", "heap-ptr", "default-queue", "completion-action", "queue-ptr")
"""What a compiler writes about a kernel that calls the host and nothing else."""
WHOLE = '"amdgpu-no-queue-ptr" "amdgpu-no-dispatch-ptr" "amdgpu-no-dispatch-id"'
"""What leaves the arguments in registers, as the device has them, and lists all others in memory."""
CALLS = WHOLE + " " + " ".join(f'"amdgpu-no-{one}"' for one in UNUSED)
PRINTS = '!llvm.printf.fmts = !{!0}\n!0 = !{!"1:1:4:n is %d\\0A"}\n'


def compiled(attributes: str, more: str = "") -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = KERNEL.replace("ATTRIBUTES", attributes).replace("LINE", ", !dbg !15" if more == LINES else "")
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx1100", opt=2)
    return bytes(machine.emit_object(llvm.parse_assembly(text + more)))


DEVICE = "amd-emu:gfx1100"


def test_a_kernel_that_lists_all_hidden_arguments_runs(device: hcq.Device):
    out = interop.empty(device, 32, np.int32)
    interop.load(device, compiled(WHOLE)).launch(out, 7, groups=1, threads=32)
    assert out.numpy().tolist() == [7] * 32


@pytest.mark.parametrize(
    ("attributes", "more", "words"),
    [
        (CALLS, "", r"fill calls the host for printf, assert or malloc \(hidden_hostcall_buffer\)"),
        (WHOLE, PRINTS, r"fill calls the host for printf \(hidden_printf_buffer\)"),
    ],
    ids=["hostcall", "printf"],
)
def test_a_kernel_that_calls_the_host_is_refused(device: hcq.Device, attributes: str, more: str, words: str):
    code = compiled(attributes, more)
    with pytest.raises(UnsupportedError, match=words) as caught:
        interop.load(device, code)
    assert "hint: compile it without (-DNDEBUG" in str(caught.value)


LINES = """!llvm.dbg.cu = !{!10}
!llvm.module.flags = !{!12}
!10 = distinct !DICompileUnit(language: DW_LANG_C, file: !11, emissionKind: LineTablesOnly)
!11 = !DIFile(filename: "fill.cl", directory: "/kernels")
!12 = !{i32 2, !"Debug Info Version", i32 3}
!13 = !DISubroutineType(types: !{})
!14 = distinct !DISubprogram(name: "fill", file: !11, line: 3, type: !13, unit: !10,
  spFlags: DISPFlagDefinition)
!15 = !DILocation(line: 7, column: 3, scope: !14)
"""
S_NOP, S_WAITCNT = b"\x00\x00\x80\xbf", b"\x89\xbf"


def test_a_missing_wait_is_a_finding_with_kernel_and_source_line(device: hcq.Device):
    code = bytearray(compiled(f"{WHOLE} !dbg !14", LINES))
    at = next(at for at in range(0, len(code), 4) if code[at + 2 : at + 4] == S_WAITCNT)
    code[at : at + 4] = S_NOP
    kernel = interop.load(device, bytes(code))
    with pytest.raises(DeviceFault) as caught:
        kernel.launch(interop.empty(device, 32, np.int32), 7, groups=1, threads=32).wait()
    found = sanitize.findings(caught.value)
    assert {(one["kind"], one["kernel"], one["thread"]) for one in found} == {("missing_wait", "fill", None)}
    assert "fill.cl:7" in {one["source"].rpartition("/")[2] for one in found}
    assert "needs a wait for lgkmcnt" in sanitize.text(found[0])
    device.recover()
