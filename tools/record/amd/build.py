"""Kernels of AMD forms: code objects that this module writes, several forms in one kernel.

A form's text is a label and the words of its code. The code runs in every lane of workgroups of 128 threads;
a thread computes a row. When the code begins, all lanes execute, and these registers are set:

- v0: the number of the thread; v3: this number * 64.
- v[4:5], v[6:7], v[8:9], v[12:13]: up to four operands. More operands are in pairs from v32 on.
- s40: the number of the workgroup; s[36:37]: the address of results; s[38:39]: the address of inputs.
- s[42:43]: the address of 64 bytes of memory for each thread, which begin as zeros. As many bytes of LDS and
  of scratch memory for each thread begin at offset 0.

The code may use any register except s36 to s47, and must leave EXEC as it was. The name of a result is the
vector register that holds it; a result of 64 bits is in this register and the next one. A form with more than
one workgroup has a kernel of its own.

The code object comes from LLVM, which compiles a template; `linked` replaces its code.

An unknown architecture raises `UnsupportedError`.

Not here: the forms. Next: `encode`, the words of instructions; `vector` and the other modules, the forms.
"""

# ruff: noqa: E501 - tables and words of code read best on one line

from __future__ import annotations

import functools
import hashlib
import struct
import zlib
from typing import TYPE_CHECKING, Final

from compiler.llvm import Machine, emit_object
from drivers.elf import Elf
from hcq.program import KernelImage
from tools.record.amd.encode import VCC, Code, base
from tools.record.forms import BYTES, SLOTS, Form, Kernel, Launch, gathered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PACK: Final = 32
"""The most forms in one kernel."""
THREADS: Final = 128
"""Threads of a workgroup."""
CELL: Final = 64
"""Bytes of a thread's own global memory, of its LDS, and of its scratch memory."""
REGISTERS: Final = (4, 6, 8, 12)
"""The first vector registers of up to four operands."""
FIRST: Final = 32
"""The first vector register of more than four operands."""
VECTORS: Final = 128
"""Vector registers of a kernel; on gfx9 as many accumulation registers besides."""
_UNUSED: Final = ("dispatch-ptr", "queue-ptr", "dispatch-id", "implicitarg-ptr", "lds-kernel-id", "workgroup-id-y",
                  "workgroup-id-z", "workitem-id-y", "workitem-id-z")
_TEMPLATE: Final = f"""target triple = "amdgcn-amd-amdhsa"
@cells = internal addrspace(3) global [{THREADS * CELL} x i8] poison, align 64
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %in) #0 {{
  %room = alloca [{CELL} x i8], align 16, addrspace(5)
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  store volatile i32 %g, ptr addrspace(5) %room
  store volatile i32 %t, ptr addrspace(3) @cells
  store volatile i32 %t, ptr addrspace(1) %out
  store volatile i32 %t, ptr addrspace(1) %in
  ret void
}}
attributes #0 = {{ "amdgpu-flat-work-group-size"="{THREADS},{THREADS}" {" ".join(f'"amdgpu-no-{one}"' for one in _UNUSED)} }}
"""
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SECTIONS_AT, _RSRC1, _RSRC3 = 40, 48, 44


@functools.cache
def _template(arch: str) -> bytes:
    return emit_object(_TEMPLATE, Machine("amdgcn-amd-amdhsa", arch), codegen=0)


def linked(words: Sequence[int], arch: str) -> bytes:
    """Return a code object whose kernel `k` has these words as its code.

    It is the template with the code at the end of the file and more registers in its descriptor.
    """
    data = bytearray(_template(arch))
    elf = Elf(bytes(data))
    code, descriptor = elf.symbol("k"), elf.symbol("k.kd")
    assert code is not None
    assert descriptor is not None
    data += bytes(-len(data) % 256)
    place, content = len(data), struct.pack(f"<{len(words)}I", *words)
    data += content
    header = struct.unpack_from("<Q", data, _SECTIONS_AT)[0] + code.section * _SECTION.size
    section = list(_SECTION.unpack_from(data, header))
    section[4:6] = place, len(content)
    _SECTION.pack_into(data, header, *section)
    at = elf.sections[descriptor.section].offset + descriptor.value
    family = Code(base(arch)).family
    rsrc1, rsrc3 = (struct.unpack_from("<I", data, at + n)[0] for n in (_RSRC1, _RSRC3))
    # vector registers in granules of 8; on gfx9 half of them accumulators, and scalar registers in pairs of granules of 8
    count = 2 * VECTORS if family == "gfx9" else VECTORS
    rsrc1 = rsrc1 & ~0x3FF | count // 8 - 1 | (2 * 7 - 1 << 6 if family == "gfx9" else 0)
    if family == "gfx9":
        rsrc3 = rsrc3 & ~0x3F | VECTORS // 4 - 1
    struct.pack_into("<I", data, at + _RSRC1, rsrc1)
    struct.pack_into("<I", data, at + _RSRC3, rsrc3)
    return bytes(data)


def words_of(form: Form) -> list[int]:
    """Return the words of a form's text."""
    return [int(word, 16) for word in form.text.rpartition(": ")[2].split()]


def _prologue(c: Code, cells: int) -> list[int]:
    group = 117 if c.family == "gfx12" else 2  # TTMP9, or the scalar register behind the arguments' address
    load = {"soffset": 124} if c.family != "gfx9" else {"imm": 1}
    return [
        *c.scalar(40, group),
        *c.make("s_load_b128", "SMEM", sdata=36, sbase=0, **load),
        *c.waits,
        *c.make("s_add_u32", "SOP2", cells, sdst=42, ssrc0=36, ssrc1=255),
        *c.make("s_addc_u32", "SOP2", sdst=43, ssrc0=37, ssrc1=128),
        *c.make("v_and_b32", "VOP2", 1023, vdst=0, src0=255, vsrc1=0),
        *c.shift(3, 6, 0),
    ]


def _loads(c: Code, form: Form, at: int) -> Iterator[int]:
    count = len(form.operands)
    if not count:
        return
    yield from c.vector(2, 255, 8 * count)
    yield from c.make("v_mul_u32_u24", "VOP2", vdst=2, src0=256 + 2, vsrc1=0)
    yield from c.add(2, at, 2)
    for n in range(count):
        register = REGISTERS[n] if count <= len(REGISTERS) else FIRST + 2 * n
        yield from c.access("GLOBAL", "global_load_b64", register, 2, 38, 8 * n)
    yield from c.waits


def _stores(c: Code, form: Form, at: int) -> Iterator[int]:
    lanes = c.lanes
    yield from c.vector(1, 255, form.count)
    yield from c.make("v_cmp_gt_u32", "VOPC", src0=256 + 1, vsrc1=0)
    yield from c.settle
    yield from c.make(f"s_mov_b{lanes}", "SOP1", sdst=126, ssrc0=VCC)
    yield from c.settle
    for result, offset in zip(form.results, form.offsets, strict=False):
        size = BYTES[result.type]
        yield from c.shift(2, size.bit_length() - 1, 0)
        yield from c.add(2, at + offset, 2)
        yield from c.access("GLOBAL", f"global_store_b{8 * size}", int(result.name[1:]), 2, 36)
    yield from c.waits
    yield from c.everybody()
    yield from c.settle


class Pack:
    """A kernel of one form or several."""

    def __init__(self, forms: Sequence[Form], arch: str) -> None:
        c = Code(base(arch))
        self.arch, self.forms, self.at = arch, list(forms), dict[str, int]()
        target, blocks = 0, list[int]()
        inputs, places = gathered(forms)
        for form, place in zip(forms, places, strict=True):
            self.at[form.name] = target
            blocks += [*_loads(c, form, place), *words_of(form), *c.everybody(), *c.settle, *_stores(c, form, target)]  # fmt: skip
            target += form.result_bytes
        widest = max(len(form.operands) for form in forms)
        self.inputs = inputs + bytes(8 * widest * THREADS)
        self.groups = forms[0].launch.groups
        cells = -(-target // CELL) * CELL
        self.out_bytes = cells + CELL * THREADS
        self.words = [*_prologue(c, cells), *blocks, *c.make("s_endpgm", "SOPP")]

    def image(self, folder: Path | None) -> KernelImage:
        """Return the image: the prepared one from `folder` if it exists, else a new one."""
        file = self.file(folder) if folder is not None else None
        code = (zlib.decompress(file.read_bytes()) if file is not None and file.exists() else linked(self.words, self.arch))  # fmt: skip
        return KernelImage(name="k", arch=self.arch, code=code, args=SLOTS, kernarg_size=16, max_threads=THREADS,
                           shared_bytes=THREADS * CELL)

    def file(self, folder: Path) -> Path:
        """Return the path of the prepared code object; it need not exist."""
        digest = hashlib.sha256(struct.pack(f"<{len(self.words)}I", *self.words)).hexdigest()[:16]
        return folder / f"record-{self.arch}-{digest}.o.z"

    def kernel(self, folder: Path | None) -> Kernel:
        """Return the kernel with its launch, its inputs and the offsets of its results; see `image`."""
        return Kernel(self.image(folder), Launch(self.groups, (THREADS, 1, 1)), self.inputs, self.out_bytes, dict(self.at))  # fmt: skip


def packs(forms: Sequence[Form], arch: str) -> list[Pack]:
    """Return the kernels of forms: up to `PACK` forms in one; a form of several workgroups alone."""
    alone = [form for form in forms if form.launch.groups != (1, 1, 1)]
    rest = [form for form in forms if form.launch.groups == (1, 1, 1)]
    return [*(Pack(rest[at : at + PACK], arch) for at in range(0, len(rest), PACK)), *(Pack([one], arch) for one in alone)]  # fmt: skip
