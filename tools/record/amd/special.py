"""Forms beside operations on operands: constants, modes, barriers, contended atomics, litmus tests.

A litmus test counts outcomes of 512 turns in every thread of the second workgroup. With the fences of AMD's
memory model (LLVM's AMDGPUUsage, Memory Model) the count of the forbidden outcome must be 0. Without fences
the counts are recorded and not compared.

Not here: one thread's own memory (`memory`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501 - tables and words of code read best on one line; a form has that many parts

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.amd.encode import LITERAL, ONE, VCC, VECTOR, ZERO, Code, text_of
from tools.record.amd.vector import SAME
from tools.record.forms import NOTHING, Allowed, Form, Launch, Result, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

_SOURCES: Final = (*range(128, 209), *range(240, 249), 251, 252, 253)
_NEVER: Final = Allowed(
    "zero", 0, rule="forbidden by AMD's memory model (LLVM AMDGPUUsage) with these fences"
)
_COUNTS: Final = Allowed(
    "free", 0, rule="counts of an outcome that is allowed: recorded to learn how often it is seen"
)
_TURNS: Final = 512
_HALVES: Final = (0x0001_0400, 0x8001_83FF, 0x3C00_7BFF, 0xFBFF_0200)


def forms(arch: str) -> Iterator[Form]:
    """Yield every form of this module."""
    c = Code(arch)
    yield from constants(c)
    yield from modes(c)
    yield from shared(c)
    yield from contended(c)
    yield from litmus(c)


def one(name: str, words: list[int], results: tuple[Result, ...], *, inputs: object = NOTHING, rows: int = 0, doubt: int = 5, groups: int = 1) -> Form:  # fmt: skip
    """Return a form of code that sets the registers of its results itself; `groups` are its workgroups."""
    count = getattr(inputs, "shape", (0, 0))[1]
    return Form(name, text_of(name, words), ("u64",) * count, inputs, results, doubt=doubt, group="lanes", rows=rows,
                launch=Launch((groups, 1, 1), (128, 1, 1)))


def constants(c: Code) -> Iterator[Form]:
    """Yield inline constants as operands of 32 and 64 bits, the bits vccz, execz and scc, MODE and s_getpc."""
    for at in range(0, len(_SOURCES), 8):
        codes = _SOURCES[at : at + 8]
        words = [*c.constant(VCC, 0), *c.make("s_cmp_eq_u32", "SOPC", ssrc0=ZERO, ssrc1=ZERO), *c.settle]
        for n, code in enumerate(codes):
            words += c.vector(16 + n, code)
        yield one(f"special.constants {codes[0]} to {codes[-1]}", words, tuple(Result(f"v{16 + n}", "u32") for n in range(len(codes))), doubt=1)  # fmt: skip
        words = []
        for n, code in enumerate(codes):
            if code < 251:
                words += [*c.make("s_mov_b64", "SOP1", sdst=10, ssrc0=code), *c.vector(16 + 2 * n, 10), *c.vector(17 + 2 * n, 11)]  # fmt: skip
        yield one(f"special.wide constants {codes[0]} to {codes[-1]}", words,
                  tuple(Result(f"v{16 + 2 * n}", "u64") for n, code in enumerate(codes) if code < 251), doubt=1)  # fmt: skip
    words = c.make("s_getreg_b32", "SOPK", sdst=10, simm16=1 | 31 << 11)
    yield one("special.MODE", [*words, *c.vector(16, 10)], (Result("v16", "u32"),))
    words = [*c.make("s_getpc_b64", "SOP1", sdst=10), *c.make("s_getpc_b64", "SOP1", sdst=12), *c.make("s_sub_u32", "SOP2", sdst=10, ssrc0=12, ssrc1=10)]  # fmt: skip
    yield one("special.s_getpc_b64", [*words, *c.vector(16, 10)], (Result("v16", "u32"),))


def modes(c: Code) -> Iterator[Form]:
    """Yield arithmetic on subnormals in each of their 16 modes, and overflow of f16 with FP16_OVFL."""
    values = frozen([[x, y, 0, 0] for x in (*_HALVES, 0x0040_0000, 0x8000_0001, 0x3F80_0000) for y in (*_HALVES, 0x0000_0001, 0xBF80_0000)])  # fmt: skip
    operations = (("v_mul_f32", "f32"), ("v_add_f32", "f32"), ("v_max_f32", "f32"), ("v_mul_f16", "f16x2"), ("v_add_f16", "f16x2"))  # fmt: skip
    for mode in range(16):
        words = [*c.make("s_setreg_imm32_b32", "SOPK", mode, simm16=1 | 4 << 6 | 3 << 11), *c.settle, *_several(c, operations)]  # fmt: skip
        words += [*c.make("s_setreg_imm32_b32", "SOPK", 15, simm16=1 | 4 << 6 | 3 << 11), *c.settle]
        results = tuple(Result(f"v{16 + n}", type_, SAME) for n, (_, type_) in enumerate(operations))
        yield one(f"special.subnormals {mode:04b}", words, results, inputs=values, doubt=4)
    if c.family != "gfx9":
        words = [*c.make("s_denorm_mode", "SOPP", simm16=0), *c.settle, *_several(c, operations), *c.make("s_denorm_mode", "SOPP", simm16=15)]  # fmt: skip
        words += [*c.make("s_round_mode", "SOPP", simm16=0), *c.settle]
        results = tuple(Result(f"v{16 + n}", type_, SAME) for n, (_, type_) in enumerate(operations))
        yield one("special.s_denorm_mode 0000", words, results, inputs=values, doubt=4)
    words = [*c.make("s_setreg_imm32_b32", "SOPK", 1, simm16=1 | 23 << 6), *c.settle, *_several(c, operations[3:])]  # fmt: skip
    words += [*c.make("s_setreg_imm32_b32", "SOPK", 0, simm16=1 | 23 << 6), *c.settle]
    yield one("special.FP16_OVFL", words, tuple(Result(f"v{16 + n}", "f16x2", SAME) for n in range(2)), inputs=values, doubt=6)  # fmt: skip


def _several(c: Code, operations: tuple[tuple[str, str], ...]) -> list[int]:
    return [w for n, (stem, _) in enumerate(operations) for w in
            (*c.vector(16 + n, ZERO), *c.make(stem, "VOP2", vdst=16 + n, src0=VECTOR + 4, vsrc1=6))]


def barrier(c: Code) -> list[int]:
    """Return a barrier of the workgroup."""
    if c.family == "gfx12":
        return [*c.make("s_barrier_signal", "SOP1", ssrc0=193), *c.make("s_barrier_wait", "SOPP", simm16=0xFFFF)]  # fmt: skip
    return c.make("s_barrier", "SOPP")


def between(c: Code, words: list[int]) -> list[int]:
    """Return code with barriers before and after it, because other forms of the kernel use the same memory."""
    return [*c.waits, *barrier(c), *words, *c.waits, *barrier(c)]


def shared(c: Code) -> Iterator[Form]:
    """Yield an exchange through LDS with a barrier: each thread reads what the thread 77 further on wrote."""
    for size in (32, 64, 128):
        words = [*c.vector(4, VECTOR), *c.vector(5, VECTOR + 3), *c.vector(6, LITERAL, 0x1234), *c.vector(7, VECTOR), *c.access("DS", f"ds_store_b{size}", 4, 3, 0)]  # fmt: skip
        words += [*c.waits, *barrier(c), *c.add(2, 77 * 64, 3), *c.make("v_and_b32", "VOP2", 128 * 64 - 1, vdst=2, src0=LITERAL, vsrc1=2)]  # fmt: skip
        words += [*(w for n in range(4) for w in c.vector(16 + n, ZERO)), *c.access("DS", f"ds_load_b{size}", 16, 2, 0), *c.waits]  # fmt: skip
        yield one(f"special.LDS behind a barrier {size}", between(c, words), (Result("v16", "u64"), Result("v18", "u64")), rows=128, doubt=2)  # fmt: skip


def contended(c: Code) -> Iterator[Form]:
    """Yield atomics of 128 threads at one address: old values are recorded, the final value is compared."""
    order = Allowed("free", 0, rule="the order of threads is not defined: recorded to learn it")
    back = {"gfx9": {"sc0": 1}, "gfx11": {"glc": 1}, "gfx12": {"th": 1}}[c.family]
    seg = {"seg": 2}
    for stem, value in (
        ("add_u32", 3),
        ("max_u32", 0),
        ("xor_b32", 0x55),
        ("inc_u32", 1000),
        ("or_b32", 1),
        ("add_f32", 0x3F80_0000),
    ):
        words = [*c.vector(2, ZERO), *c.vector(5, ZERO), *store(c, 5, 2), *fence(c, release=True), *barrier(c), *fence(c, release=False)]  # fmt: skip
        words += c.vector(4, VECTOR) if not value else c.vector(4, LITERAL, value)
        words += [*c.make(f"global_atomic_{stem}", "GLOBAL", **seg, **back, vdst=16, vdata=4, vaddr=2, saddr=42), *c.waits, *barrier(c)]  # fmt: skip
        words += [*fence(c, release=True), *fence(c, release=False), *load(c, 17, 2)]
        yield one(f"special.one address {stem}", between(c, words), (Result("v16", "u32", order), Result("v17", "u32")), rows=128, doubt=5)  # fmt: skip
        words = [*c.vector(2, ZERO), *c.vector(5, ZERO), *c.access("DS", "ds_store_b32", 5, 2, 0), *c.waits, *barrier(c)]  # fmt: skip
        words += [*(c.vector(4, VECTOR) if not value else c.vector(4, LITERAL, value))]
        name = f"ds_{stem.replace('_', '_rtn_')}"
        words += [*c.make(name, "DS", addr=2, data0=4, vdst=16), *c.waits, *barrier(c), *c.access("DS", "ds_load_b32", 17, 2, 0), *c.waits]  # fmt: skip
        yield one(f"special.one address {name}", between(c, words), (Result("v16", "u32", order), Result("v17", "u32")), rows=128, doubt=5)  # fmt: skip


def fence(c: Code, *, release: bool) -> list[int]:
    """Return a release or an acquire fence between workgroups of one GPU."""
    if c.family == "gfx9":
        words = c.make("buffer_wbl2", "MUBUF", sc1=1) if release else c.make("buffer_inv", "MUBUF", sc1=1)
    elif c.family == "gfx11":
        words = [] if release else [*c.make("buffer_gl1_inv", "MUBUF"), *c.make("buffer_gl0_inv", "MUBUF")]
    else:
        words = c.make("global_wb", "GLOBAL", scope=2) if release else c.make("global_inv", "GLOBAL", scope=2)
    return [*c.waits, *words, *c.waits]


def load(c: Code, register: int, address: int, offset: int = 0) -> list[int]:
    """Return an atomic load, coherent between workgroups, and a wait for it."""
    how = {"gfx9": {"sc1": 1}, "gfx11": {"glc": 1}, "gfx12": {"scope": 2}}[c.family]
    return [*c.make("global_load_b32", "GLOBAL", seg=2, **how, vdst=register, vaddr=address, saddr=42, offset=offset), *c.waits]  # fmt: skip


def store(c: Code, register: int, address: int, offset: int = 0) -> list[int]:
    """Return an atomic store, coherent between workgroups."""
    how = {"gfx9": {"sc1": 1}, "gfx11": {}, "gfx12": {"scope": 2}}[c.family]
    return c.make("global_store_b32", "GLOBAL", seg=2, **how, vdata=register, vaddr=address, saddr=42, offset=offset)  # fmt: skip


def litmus(c: Code) -> Iterator[Form]:
    """Yield message passing with and without fences, and two reads of one address."""
    for fenced in (True, False):
        between = [fence(c, release=release) if fenced else [] for release in (True, False)]
        writer = [*store(c, 10, 3), *between[0], *store(c, 10, 3, 32)]
        reader = [*load(c, 4, 3, 32), *between[1], *load(c, 5, 3)]
        name = f"special.message passing {'with' if fenced else 'without'} fences"
        yield two(c, name, writer, reader, _NEVER if fenced else _COUNTS)
    reader = [*load(c, 4, 3), *load(c, 5, 3)]
    yield two(c, "special.two reads of one address", store(c, 10, 3), reader, _NEVER)


def two(c: Code, name: str, writer: list[int], reader: list[int], allowed: Allowed) -> Form:
    """Return a test of two workgroups.

    The first stores the number of the turn, v10. The second counts the turns in which the second value that
    it reads, v5, is older than the first, v4: in v16. In v17 it counts the turns in which the first value is
    new.
    """
    turn = 50
    add = "v_add_nc_u32"
    counts: list[int] = []
    for register, words in (
        (16, c.make("v_cmp_lt_u32", "VOPC", src0=VECTOR + 5, vsrc1=4)),
        (17, c.make("v_cmp_lt_u32", "VOPC", src0=VECTOR + 6, vsrc1=4)),
    ):
        counts += [*words, *c.settle, *c.make("v_cndmask_b32", "VOP2", vdst=7, src0=ZERO, vsrc1=11), *c.make(add, "VOP2", vdst=register, src0=VECTOR + 7, vsrc1=register)]  # fmt: skip
    counts += c.vector(6, VECTOR + 4)
    end = [*c.make("s_add_u32", "SOP2", sdst=turn, ssrc0=turn, ssrc1=ONE), *c.make("s_cmp_le_u32", "SOPC", _TURNS, ssrc0=turn, ssrc1=LITERAL)]  # fmt: skip

    def loop(body: list[int]) -> list[int]:
        whole = [*c.vector(10, turn), *body, *end]
        return [*whole, *c.make("s_cbranch_scc1", "SOPP", simm16=-(len(whole) + 1) & 0xFFFF)]

    first = [*loop(writer), *c.waits, *c.vector(0, LITERAL, 0xFFFF)]
    second = loop([*reader, *counts])
    first += c.make("s_branch", "SOPP", simm16=len(second))
    words = [*c.scalar(turn, ONE), *(w for v in (6, 16, 17) for w in c.vector(v, ZERO)), *c.vector(11, ONE)]
    words += [*c.make("s_cmp_lg_u32", "SOPC", ssrc0=40, ssrc1=ZERO), *c.make("s_cbranch_scc1", "SOPP", simm16=len(first)), *first, *second]  # fmt: skip
    results = (Result("v16", "u32", allowed), Result("v17", "u32", _COUNTS))
    return one(name, words, results, rows=128, doubt=8, groups=2)
