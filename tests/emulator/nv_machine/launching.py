"""Launches that are built word by word.

Images are placed and relocated here; constant banks and launch descriptors are packed from the layouts.
"""

# ruff: noqa: E501 - instructions read best one row a step

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compiler.targets.nvptx.assembler import assemble
from drivers.elf import ALLOC, Elf, Image, place_sections
from drivers.nv.layouts.chips import CHIPS
from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.cubin import CallAbs47, CallAbs55, Relocation
from drivers.nv.layouts.qmd import QMDS, sm_config
from tests.emulator.nv_machine.client import MIB, Client, Memory, Ring, method, sem, wait_word

if TYPE_CHECKING:
    from drivers.elf import ElfSite
    from drivers.elf import Relocation as ElfRelocation

SHARED_WINDOW, LOCAL_WINDOW = 0x4_0000_0000, 0x5_0000_0000
HEAD = ".version 8.0\n.target {arch}\n.address_size 64\n"
VADD = """
.visible .entry vadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {
 .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<8>;
 ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [c]; ld.param.u32 %r4, [n];
 mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.s32 %r0, %r0, %r1, %r2;
 setp.ge.u32 %p, %r0, %r4; @%p bra END;
 mul.wide.u32 %d3, %r0, 4; add.s64 %d4, %d0, %d3; add.s64 %d5, %d1, %d3; add.s64 %d6, %d2, %d3;
 ld.global.u32 %r5, [%d4]; ld.global.u32 %r6, [%d5]; add.s32 %r5, %r5, %r6; st.global.u32 [%d6], %r5;
END: ret;
}
"""
STORE = """
.visible .entry store(.param .u64 at, .param .u32 value) {
 .reg .b32 %r<2>; .reg .b64 %d<2>;
 ld.param.u64 %d0, [at]; ld.param.u32 %r0, [value]; st.global.u32 [%d0], %r0; ret;
}
"""
INCREMENT = """
.visible .entry increment(.param .u64 at) {
 .reg .b32 %r<2>; .reg .b64 %d<2>;
 ld.param.u64 %d0, [at]; ld.global.u32 %r0, [%d0]; add.s32 %r0, %r0, 1; st.global.u32 [%d0], %r0; ret;
}
"""
REVERSE = """
.shared .align 4 .b8 tile[512];
.visible .entry reverse(.param .u64 at) {
 .reg .b32 %r<8>; .reg .b64 %d<4>;
 ld.param.u64 %d0, [at]; mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mul.wide.u32 %d1, %r0, 4; add.s64 %d1, %d0, %d1;
 ld.global.u32 %r2, [%d1]; shl.b32 %r3, %r0, 2; add.u32 %r3, %r1, %r3; st.shared.u32 [%r3], %r2; bar.sync 0;
 sub.s32 %r4, 127, %r0; shl.b32 %r4, %r4, 2; add.u32 %r4, %r1, %r4; ld.shared.u32 %r5, [%r4]; st.global.u32 [%d1], %r5; ret;
}
"""
STACK = """
.visible .entry stack(.param .u64 at, .param .u32 which) {
 .local .align 4 .b8 depot[512]; .reg .b32 %r<8>; .reg .b64 %d<6>; .reg .pred %p;
 ld.param.u64 %d0, [at]; ld.param.u32 %r0, [which]; mov.u64 %d1, depot; mov.u32 %r1, 0;
LOOP: mul.wide.u32 %d2, %r1, 4; add.s64 %d4, %d0, %d2; ld.volatile.global.u32 %r2, [%d4]; and.b32 %r2, %r2, 127;
 mul.wide.u32 %d2, %r2, 4; add.s64 %d2, %d1, %d2; st.local.u32 [%d2], %r1;
 add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 64; @%p bra LOOP;
 mul.wide.u32 %d3, %r0, 4; add.s64 %d3, %d1, %d3; ld.local.u32 %r3, [%d3]; st.global.u32 [%d0], %r3; ret;
}
"""
CONSTANTS = """
.const .align 4 .u32 table[4] = {5, 6, 7, 8};
.visible .global .align 4 .u32 counter = 40;
.visible .entry constants(.param .u64 at, .param .u32 i) {
 .reg .b32 %r<6>; .reg .b64 %d<6>;
 ld.param.u64 %d0, [at]; ld.param.u32 %r0, [i]; mov.u64 %d1, table; mul.wide.u32 %d2, %r0, 4; add.s64 %d1, %d1, %d2;
 ld.const.u32 %r1, [%d1]; mov.u64 %d3, counter; ld.global.u32 %r2, [%d3]; add.u32 %r1, %r1, %r2; st.global.u32 [%d3], %r1;
 st.global.u32 [%d0], %r1; ret;
}
"""
JUMPS = """
.visible .entry jumps(.param .u64 at) {
 .reg .b32 %r<4>; .reg .b64 %d<3>; ts: .branchtargets L0, L1, L2, L3, L4, L5, L6, L7;
 ld.param.u64 %d0, [at]; mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 7; brx.idx %r1, ts;
L0: mov.u32 %r2, %ntid.x; bra E;
L1: mul.lo.u32 %r2, %r0, 77; bra E;
L2: xor.b32 %r2, %r0, 1234567; bra E;
L3: add.u32 %r2, %r0, 30; bra E;
L4: sub.u32 %r2, %r0, 2; bra E;
L5: shl.b32 %r2, %r0, 9; bra E;
L6: popc.b32 %r2, %r0; bra E;
L7: clz.b32 %r2, %r0; bra E;
E: mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r2; ret;
}
"""
SPIN = ".visible .entry spin(.param .u64 at) {\nL: bra L;\n}\n"
TRAP = ".visible .entry stop(.param .u64 at) { trap; ret; }\n"
ARCHES = {"sm_80": "sm_80", "sm_86": "sm_86", "sm_90": "sm_90a", "sm_120": "sm_120a"}


@functools.cache
def cubin(profile: str, *texts: str) -> bytes:
    """Assemble a module for a profile."""
    arch = ARCHES[profile]
    return assemble(HEAD.format(arch=arch).replace("8.0", "8.7") + "".join(texts), arch)


def _word(site: ElfSite, value: int) -> None:
    struct.pack_into("<I", site.content, site.at + 4, value & 0xFFFF_FFFF)


def _call(layout: Any, site: ElfSite) -> None:
    raw = layout.from_bytes(site.content, site.at).replace(TARGET=site.symbol + (site.addend or 0))
    site.content[site.at : site.at + 16] = raw.to_bytes()


FORMULAS = {
    Relocation.R_CUDA_64: lambda s: struct.pack_into("<Q", s.content, s.at, s.symbol + (s.addend or 0)),
    Relocation.R_CUDA_ABS32_LO: lambda s: _word(s, s.symbol + (s.addend or 0)),
    Relocation.R_CUDA_ABS32_HI: lambda s: _word(s, (s.symbol + (s.addend or 0)) >> 32),
    Relocation.R_CUDA_ABS47_34: lambda s: _call(CallAbs47, s),
    Relocation.R_CUDA_ABS55_16_34: lambda s: _call(CallAbs55, s),
}


@dataclass
class Code:
    """An image on the device."""

    elf: Elf
    memory: Memory
    image: Image
    raw: bytes

    def at(self, section: str) -> int:
        found = self.elf.section(section)
        assert found is not None, [s.name for s in self.elf.sections]
        return self.memory.va + self.image.placement.offsets[found.index]


def upload(client: Client, raw: bytes, *, whole: bool = True) -> Code:
    """Place, relocate and upload an image, followed by the file itself."""
    elf = Elf(raw)
    image = Image(elf, place_sections(elf, keep=lambda s: bool(s.flags & ALLOC)))
    tail = -(-len(image.content) // 4096) * 4096 + 8192
    memory = client.memory(-(-(tail + len(raw)) // MIB) * MIB)

    def resolve(one: ElfRelocation) -> int:
        assert one.symbol is not None
        return memory.va + image.offset_of(one.symbol)

    image.relocate(memory.va, FORMULAS, resolve)
    memory.view[: len(image.content)] = bytes(image.content)
    if whole:
        memory.view[tail : tail + len(raw)] = raw
    return Code(elf, memory, image, raw)


@dataclass
class Launcher:
    """A compute channel that is ready to launch."""

    client: Client
    ring: Ring
    arguments: Memory
    backing: Memory | None = None
    used: int = 0
    done: int = 0
    windows: dict[str, int] = field(default_factory=dict)

    @classmethod
    def make(cls, client: Client) -> Launcher:
        self = cls(client, client.compute_channel(), client.memory(MIB))
        ring = self.ring
        ring.push(set_pair(M.SET_SHADER_SHARED_MEMORY_WINDOW_A, SHARED_WINDOW), ring=False)
        ring.push(set_pair(M.SET_SHADER_LOCAL_MEMORY_WINDOW_A, LOCAL_WINDOW), ring=False)
        return self

    def local(self, per_tpc: int) -> None:
        """Back local memory, for all the TPCs of the full die."""
        profile = self.client.machine.gpus[0].profile
        self.backing = self.client.memory(per_tpc * profile.gpcs * profile.tpcs_per_gpc)
        words = set_pair(M.SET_SHADER_LOCAL_MEMORY_A, self.backing.va)
        words += method(
            1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, per_tpc >> 32, per_tpc & 0xFFFF_FFFF, 0xFF
        )
        self.ring.push(words, ring=False)

    @property
    def profile(self) -> str:
        return self.client.machine.gpus[0].profile.name

    def place(self, data: bytes, align: int = 256) -> int:
        self.used = -(-self.used // align) * align
        self.arguments.view[self.used : self.used + len(data)] = data
        self.used += len(data)
        return self.arguments.va + self.used - len(data)

    def banks(self, code: Code, kernel: str) -> dict[int, tuple[int, int]]:
        """Return the address and size of each constant bank in the uploaded image of a kernel."""
        banks = {}
        for bank, name in ((2, f".nv.constant2.{kernel}"), (3, ".nv.constant3"), (4, ".nv.constant4")):
            section = code.elf.section(name)
            if section is not None:
                at = code.image.placement.offsets[section.index]
                content = bytes(code.memory.view[at : at + section.size])
                banks[bank] = self.place(content), section.size
        return banks

    def bank0(self, params: bytes, grid: Any, block: Any, **words: Any) -> bytes:
        shape: Any = CHIPS[self.profile].bank0
        values = {
            "ntid": block,
            "nctaid": grid,
            "shared_window": SHARED_WINDOW,
            "local_window": LOCAL_WINDOW,
        } | words
        raw: bytes = shape(**values).to_bytes() + params
        return raw + bytes(-len(raw) % 16)

    def descriptor(
        self,
        code: Code,
        name: str,
        params: bytes,
        *,
        grid: Any = (1, 1, 1),
        block: Any = (1, 1, 1),
        shared: int = 0,
        low: int = 0,
        high: int = 0,
        words: Any = None,
        banks: Any = None,
        bank0: int | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Return the fields of a launch descriptor."""
        content = self.bank0(params, grid, block, **(words or {}))
        first = self.place(content) if bank0 is None else bank0
        tables = {0: (first, len(content))} | (banks or {})
        program = code.at(f".text.{name}")
        config = next(sm_config(k) for k in CHIPS[self.profile].carveouts_kib if k << 10 >= shared)
        most = sm_config(CHIPS[self.profile].carveouts_kib[-1])
        version = self.client.generation.qmd
        old, five = version == "V03", version == "V05"
        values: dict[str, Any] = {
            "BARRIER_COUNT": 1,
            "MIN_SM_CONFIG_SHARED_MEM_SIZE": config,
            "TARGET_SM_CONFIG_SHARED_MEM_SIZE": config,
            "MAX_SM_CONFIG_SHARED_MEM_SIZE": most,
            "CWD_MEMBAR_TYPE": 1,
            "INVALIDATE_SHADER_CONSTANT_CACHE": True,
            "REGISTER_COUNT_V" if old else "REGISTER_COUNT": 64,
            "API_VISIBLE_CALL_LIMIT": 1,
            "CONSTANT_BUFFER_VALID": tuple(i in tables for i in range(8)),
        }
        shape = (
            ("CTA_RASTER_WIDTH", "CTA_RASTER_HEIGHT", "CTA_RASTER_DEPTH")
            if old
            else ("GRID_WIDTH", "GRID_HEIGHT", "GRID_DEPTH")
        )
        values |= dict(zip(shape, grid, strict=True))
        values |= {f"CTA_THREAD_DIMENSION{i}": block[i] for i in range(3)}
        if not old:
            values["QMD_TYPE"] = 2
        shift = 4 if five else 0
        end = "_SHIFTED4" if five else ""
        values |= split("PROGRAM_ADDRESS", program >> shift, end)
        values["SHARED_MEMORY_SIZE_SHIFTED7" if five else "SHARED_MEMORY_SIZE"] = shared >> (7 if five else 0)
        values |= {
            f"SHADER_LOCAL_MEMORY_LOW_SIZE{end}": low >> shift,
            f"SHADER_LOCAL_MEMORY_HIGH_SIZE{end}": high >> shift,
        }
        places = [tables.get(i, (0, 0)) for i in range(8)]
        down, suffix = (0, "") if old else (6, "_SHIFTED6")
        values[f"CONSTANT_BUFFER_ADDR_LOWER{suffix}"] = tuple((va >> down) & 0xFFFF_FFFF for va, _ in places)
        values[f"CONSTANT_BUFFER_ADDR_UPPER{suffix}"] = tuple(va >> down >> 32 for va, _ in places)
        values["CONSTANT_BUFFER_SIZE_SHIFTED4"] = tuple(-(-size // 16) for _, size in places)
        return values | fields

    def qmd(self, values: dict[str, Any]) -> int:
        """Put a descriptor into memory; its address."""
        kind: Any = QMDS[self.client.generation.qmd]
        return self.place(kind(**values).to_bytes())

    def send(self, va: int, action: int = 9) -> list[int]:
        return method(1, M.SEND_PCAS_A, va >> 8) + method(1, M.SEND_SIGNALING_PCAS2_B, action)

    def run(self, code: Code, name: str, params: bytes, **kw: Any) -> None:
        """Launch and wait."""
        self.finish(self.send(self.qmd(self.descriptor(code, name, params, **kw))))

    def signal(self) -> list[int]:
        self.done += 1
        return sem(self.arguments.va + MIB - 64, self.done, RELEASE_WFI=True)

    def finish(self, words: list[int]) -> None:
        self.ring.push(words + self.signal())
        wait_word(self.arguments, MIB - 64, self.done, self.client)

    def fails(self, code: Code, name: str, params: bytes, **kw: Any) -> str:
        """Launch a kernel that is refused; return the report."""
        self.ring.push(self.send(self.qmd(self.descriptor(code, name, params, **kw))))
        self.ring.wait_error()
        return self.client.reports()[0]


def set_pair(address: int, va: int) -> list[int]:
    """Return methods that set an upper and a lower half."""
    return method(1, address, va >> 32, va & 0xFFFF_FFFF)


def split(name: str, value: int, end: str = "") -> dict[str, int]:
    """Return the fields of an address in two halves."""
    return {f"{name}_LOWER{end}": value & 0xFFFF_FFFF, f"{name}_UPPER{end}": value >> 32}


def copy_word(source: int, target: int) -> list[int]:
    """Return methods that copy 4 bytes."""
    words = (source >> 32, source & 0xFFFF_FFFF, target >> 32, target & 0xFFFF_FFFF)
    return method(4, 0x400, *words) + method(4, 0x418, 4) + method(4, 0x300, 0x186)


CALL = """
.func (.param .b32 out) triple(.param .b32 in) {
 .reg .b32 %r<3>; ld.param.b32 %r0, [in]; mul.lo.u32 %r1, %r0, 3; st.param.b32 [out], %r1; ret;
}
.visible .entry calls(.param .u64 at, .param .u32 value) {
 .reg .b32 %r<3>; .reg .b64 %d<2>;
 ld.param.u64 %d0, [at]; ld.param.u32 %r0, [value];
 { .param .b32 p; .param .b32 q; st.param.b32 [p], %r0; call.uni (q), triple, (p); ld.param.b32 %r1, [q]; }
 st.global.u32 [%d0], %r1; ret;
}
"""
NEIGHBOUR = """
.visible .entry neighbour(.param .u64 at) {
 .shared .align 4 .b8 tile[128]; .reg .b32 %r<16>; .reg .b64 %d<4>;
 ld.param.u64 %d0, [at]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
 mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, %cluster_nctarank; mov.u32 %r6, tile; shl.b32 %r7, %r0, 2; add.u32 %r6, %r6, %r7;
 st.shared.u32 [%r6], %r3; barrier.cluster.arrive; barrier.cluster.wait;
 add.u32 %r8, %r4, 1; rem.u32 %r8, %r8, %r5; mapa.shared::cluster.u32 %r9, %r6, %r8; ld.shared::cluster.u32 %r10, [%r9];
 mul.wide.u32 %d1, %r3, 4; add.u64 %d1, %d0, %d1; st.global.u32 [%d1], %r10; barrier.cluster.arrive; barrier.cluster.wait; ret;
}
"""
PLAIN = """
.visible .entry plain(.param .u64 at) { .reg .b32 %r<4>; .reg .b64 %d<3>;
 ld.param.u64 %d0, [at]; mov.u32 %r0, %ctaid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1; st.global.u32 [%d1], %r0; ret; }
"""


def cluster(shape: tuple[int, int, int], kind: int = 3) -> dict[str, int]:
    """Return the fields of a descriptor with clusters."""
    names = ("GPC_CGA_WIDTH", "GPC_CGA_HEIGHT", "GPC_CGA_DEPTH")
    return {"QMD_TYPE": kind} | dict(zip(names, shape, strict=True))
