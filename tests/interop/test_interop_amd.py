"""Code objects of AMD GPUs that others compiled: those that call the host are refused at the load."""

import numpy as np
import pytest
from llvmlite import binding as llvm

import hcq
import interop
from hcq.errors import UnsupportedError

KERNEL = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @fill(ptr addrspace(1) %out, i32 %n) ATTRIBUTES {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %n, ptr addrspace(1) %p
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
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx1100", opt=2)
    return bytes(machine.emit_object(llvm.parse_assembly(KERNEL.replace("ATTRIBUTES", attributes) + more)))


@pytest.fixture(scope="module")
def device():
    with hcq.open("amd-emu:gfx1100") as opened:
        yield opened


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
