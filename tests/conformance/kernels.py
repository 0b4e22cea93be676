"""The kernels of the conformance suite, as LLVM IR for each architecture family.

A workgroup has one thread everywhere. To add a family, give `CODE` a function that turns a kernel's name and
the device's architecture into an ELF image; the argument blocks are the same for all.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from compiler.llvm import Machine, emit_assembly, emit_object, host
from compiler.targets.nvptx.assembler import assemble
from hcq import ArgKind, ArgSlot, KernelImage

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq import DeviceInfo


def _pointer(name: str, offset: int, access: str) -> ArgSlot:
    return ArgSlot(name, ArgKind.POINTER, offset, 8, access)  # type: ignore[arg-type]  # r, w or rw


def _number(name: str, offset: int) -> ArgSlot:
    return ArgSlot(name, ArgKind.INT, offset, 4)


SIGNATURES: dict[str, tuple[ArgSlot, ...]] = {
    # out[x] = a[x] + b[x]
    "add": (_pointer("out", 0, "w"), _pointer("a", 8, "r"), _pointer("b", 16, "r")),
    # out[x] = a[x]
    "copy": (_pointer("out", 0, "w"), _pointer("a", 8, "r")),
    # i = (z * height + y) * width + x; out[i] = out[i] + base + i
    "index": (_pointer("out", 0, "rw"), _number("width", 8), _number("height", 12), _number("base", 16)),
    # out[0] += 1, atomically
    "count": (_pointer("out", 0, "rw"),),
    # out[0] = out[0] * factor + term
    "affine": (_pointer("out", 0, "rw"), _number("factor", 8), _number("term", 12)),
    # out[slot] = counter[0]++, atomically
    "turn": (_pointer("out", 0, "w"), _pointer("counter", 8, "rw"), _number("slot", 16)),
    # out[x] = out[x] * 3 + a[x] + term
    "mix": (_pointer("out", 0, "rw"), _pointer("a", 8, "r"), _number("term", 16)),
    # n steps of work that cannot be left out, then out[0] += 1, atomically
    "spin": (_pointer("out", 0, "rw"), _number("n", 8)),
}
"""All data is u32."""
_BODIES = {
    "add": """
 %pa = getelementptr i32, PTR %a, i32 %x
 %pb = getelementptr i32, PTR %b, i32 %x
 %po = getelementptr i32, PTR %out, i32 %x
 %va = load i32, PTR %pa
 %vb = load i32, PTR %pb
 %sum = add i32 %va, %vb
 store i32 %sum, PTR %po
""",
    "copy": """
 %pa = getelementptr i32, PTR %a, i32 %x
 %po = getelementptr i32, PTR %out, i32 %x
 %va = load i32, PTR %pa
 store i32 %va, PTR %po
""",
    "index": """
 %zh = mul i32 %z, %height
 %row = add i32 %zh, %y
 %start = mul i32 %row, %width
 %i = add i32 %start, %x
 %po = getelementptr i32, PTR %out, i32 %i
 %old = load i32, PTR %po
 %based = add i32 %old, %base
 %new = add i32 %based, %i
 store i32 %new, PTR %po
""",
    "count": """
 %old = atomicrmw add PTR %out, i32 1 SCOPE monotonic
""",
    "affine": """
 %old = load i32, PTR %out
 %scaled = mul i32 %old, %factor
 %new = add i32 %scaled, %term
 store i32 %new, PTR %out
""",
    "turn": """
 %turn = atomicrmw add PTR %counter, i32 1 SCOPE monotonic
 %po = getelementptr i32, PTR %out, i32 %slot
 store i32 %turn, PTR %po
""",
    "mix": """
 %pa = getelementptr i32, PTR %a, i32 %x
 %po = getelementptr i32, PTR %out, i32 %x
 %va = load i32, PTR %pa
 %old = load i32, PTR %po
 %three = mul i32 %old, 3
 %sum = add i32 %three, %va
 %new = add i32 %sum, %term
 store i32 %new, PTR %po
""",
    "spin": """
 %none = icmp eq i32 %n, 0
 br i1 %none, label %done, label %again
again:
 %left = phi i32 [ %n, %entry ], [ %less, %again ]
 %seen = load volatile i32, PTR %out
 %less = sub i32 %left, 1
 %end = icmp eq i32 %less, 0
 br i1 %end, label %done, label %again
done:
 %old = atomicrmw add PTR %out, i32 1 SCOPE monotonic
""",
}
_UNUSED = (
    "dispatch-ptr", "implicitarg-ptr", "queue-ptr", "dispatch-id", "workitem-id-x", "workitem-id-y",
    "workitem-id-z", "hostcall-ptr", "multigrid-sync-arg", "heap-ptr", "default-queue", "completion-action",
    "lds-kernel-id",
)  # fmt: skip
"""Inputs of AMD's kernels that no kernel uses, so that they occupy no registers."""


def _function(name: str, head: str, begin: list[str], pointer: str, scope: str) -> str:
    body = _BODIES[name].replace("PTR", pointer).replace("SCOPE", scope)
    return f"{head} {{\nentry:\n{''.join(begin)}{body} ret void\n}}\n"


def _type(slot: ArgSlot, pointer: str) -> str:
    return pointer if slot.kind is ArgKind.POINTER else "i32"


def _gpu(name: str, convention: str, identifier: str, scope: str) -> str:
    """Return a kernel whose arguments are parameters, and whose place in the grid is an intrinsic's."""
    parameters = ", ".join(f"{_type(slot, 'ptr addrspace(1)')} %{slot.name}" for slot in SIGNATURES[name])
    axes = [axis for axis in "xyz" if f"%{axis}\n" in _BODIES[name] or f"%{axis}," in _BODIES[name]]
    begin = [f" %{axis} = call i32 @llvm.{identifier}.{axis}()\n" for axis in axes]
    head = f"define {convention} void @{name}({parameters}) #0"
    declared = "".join(f"declare i32 @llvm.{identifier}.{axis}()\n" for axis in axes)
    return _function(name, head, begin, "ptr addrspace(1)", f'syncscope("{scope}")') + declared


@functools.cache
def amd_code(name: str, arch: str) -> bytes:
    """Return the code object of a kernel."""
    unused = " ".join(f'"amdgpu-no-{one}"' for one in _UNUSED)
    text = _gpu(name, "amdgpu_kernel", "amdgcn.workgroup.id", "agent")
    text += f'attributes #0 = {{ {unused} "amdgpu-flat-work-group-size"="1,1" }}\n'
    return emit_object(text, Machine("amdgcn-amd-amdhsa", arch, ""))


def ptx(name: str, arch: str) -> str:
    """Return the PTX of a kernel."""
    text = _gpu(name, "ptx_kernel", "nvvm.read.ptx.sreg.ctaid", "device") + "attributes #0 = { nounwind }\n"
    return emit_assembly(text, Machine("nvptx64-nvidia-cuda", arch))


@functools.cache
def nv_code(name: str, arch: str) -> bytes:
    """Return the cubin of a kernel."""
    return assemble(ptx(name, arch), arch)


@functools.cache
def host_code(name: str, _arch: str) -> bytes:
    """Return the object of a kernel, whose arguments are in memory."""
    begin = [f" %{axis} = trunc i64 %{axis}64 to i32\n" for axis in "xyz"]
    for slot in SIGNATURES[name]:
        begin.append(f" %{slot.name}.at = getelementptr i8, ptr %args, i64 {slot.offset}\n")
        begin.append(f" %{slot.name} = load {_type(slot, 'ptr')}, ptr %{slot.name}.at\n")
    head = f"define void @{name}(ptr %args, i64 %x64, i64 %y64, i64 %z64)"
    return emit_object(_function(name, head, begin, "ptr", ""), host(), level=1)


CODE: dict[str, Callable[[str, str], bytes]] = {"host": host_code, "nv": nv_code, "amd": amd_code}
"""Family -> maker of code."""


def family(info: DeviceInfo) -> str:
    """Return the family of architectures that a device belongs to."""
    if info.arch.startswith("sm_"):
        return "nv"
    return "amd" if info.arch.startswith("gfx") else "host"


def image(name: str, info: DeviceInfo) -> KernelImage:
    """Return a kernel for a device. Skips the test if it is not written, or if no kernel can run."""
    if info.limits.get("max_threads") == 0:
        pytest.skip(f"{info.driver} runs no kernels: its limits say max_threads = 0")
    kind = family(info)
    if kind not in CODE:
        pytest.skip(f"tests/conformance has no kernels for {info.arch}")
    slots = SIGNATURES[name]
    size = (max(slot.offset + slot.size for slot in slots) + 7) & -8
    return KernelImage(
        name=name,
        arch=info.arch,
        code=CODE[kind](name, info.arch),
        args=slots,
        kernarg_size=size,
        max_threads=1,
        group_ns=0 if name == "spin" else 2,
    )
