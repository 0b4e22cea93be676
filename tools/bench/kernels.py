"""The hand-written empty kernel of the queue benchmarks, for the host and both vendors of GPUs.

Not here: kernels that the compiler makes (`compiled`). Next: `queues`, the cases that launch the kernel;
docs/kernel-by-hand.md, how to write one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq import ArgKind, ArgSlot, KernelImage, UnsupportedError

if TYPE_CHECKING:
    from hcq import DeviceInfo

_HOST_EMPTY = "define void @empty(i64 %args, i64 %x, i64 %y, i64 %z) { ret void }"

_AMD_EMPTY = """
define amdgpu_kernel void @empty(ptr addrspace(1) %first) #0 { ret void }
attributes #0 = { "amdgpu-no-dispatch-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-queue-ptr"
  "amdgpu-no-dispatch-id" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" }
"""

_PTX_EMPTY = """.version 8.7
.target {arch}
.address_size 64
.visible .entry empty(.param .u64 first) {{ ret; }}
"""


def empty(info: DeviceInfo) -> KernelImage:
    """Return the image of a kernel that takes one pointer and does nothing; a workgroup has one thread.

    Raises `UnsupportedError` for a device that is neither a 64-bit host nor a GPU of AMD or NVIDIA, and as
    `compiler.targets.nvptx.assembler.assemble` does without an assembler for PTX.
    """
    args = (ArgSlot("first", ArgKind.POINTER, 0, 8),)
    if info.arch.startswith("sm_"):
        from compiler.targets.nvptx.assembler import assemble  # noqa: PLC0415 - needs the [nv] extra

        code = assemble(_PTX_EMPTY.format(arch=info.arch), info.arch)
    elif info.arch.startswith("gfx"):
        from compiler.llvm import Machine, emit_object  # noqa: PLC0415 - LLVM's AMD target, 40 ms

        code = emit_object(_AMD_EMPTY, Machine("amdgcn-amd-amdhsa", info.arch))
    elif info.word_bits == 64:
        code = _host_object(_HOST_EMPTY)
    else:
        raise UnsupportedError(
            f"no hand-written empty kernel for {info.arch}; add one to tools/bench/kernels.py"
        )
    return KernelImage(
        name="empty", arch=info.arch, code=code, args=args, kernarg_size=8, max_threads=1, group_ns=1
    )


def _host_object(ir: str) -> bytes:
    from llvmlite import binding as llvm  # noqa: PLC0415 - takes 40 ms, used only here

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="small")
    return bytes(machine.emit_object(llvm.parse_assembly(ir)))
