"""Launches that are refused: what is wrong, and the words of the report."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.cubin import InfoAttribute
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.qmd import sm_config
from emulator.nv.engines.cubins import Cubin
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, method
from tests.emulator.nv_machine.cubins import PARAM_BASE, header_of, patched, record
from tests.emulator.nv_machine.launching import (
    CONSTANTS,
    JUMPS,
    LOCAL_WINDOW,
    NEIGHBOUR,
    PLAIN,
    REVERSE,
    SHARED_WINDOW,
    STACK,
    STORE,
    Code,
    Launcher,
    cluster,
    cubin,
    set_pair,
    split,
    upload,
)

KERNELS = {
    "store": STORE,
    "reverse": REVERSE,
    "stack": STACK,
    "constants": CONSTANTS,
    "jumps": JUMPS,
    "plain": PLAIN,
    "neighbour": NEIGHBOUR,
    "fixed": STORE.replace("store(", "fixed(").replace(") {", ") .reqntid 32 {", 1),
    "bound": PLAIN.replace("plain(", "bound(").replace(" { .reg", " .reqnctapercluster 2 { .reg"),
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "reverse": {"block": (128, 1, 1)},
    "stack": {"low": 0x200, "words": {"stack_pointer": 0x200}},
    "plain": {"grid": (8, 1, 1), "block": (32, 1, 1)},
    "bound": {"grid": (8, 1, 1)},
    "neighbour": {"grid": (8, 1, 1), "block": (32, 1, 1), "shared": 0x800},
}
ALL = ("sm_80", "sm_90", "sm_120")
LAUNCH, UNSUPPORTED, FAULT = FindingKind.LAUNCH, FindingKind.UNSUPPORTED, FindingKind.MMU_FAULT
Setup = Callable[[Launcher, Code], dict[str, Any] | None]


class Bad(NamedTuple):
    """A part of the report; the launch."""

    told: str
    kernel: str
    kind: FindingKind
    profiles: tuple[str, ...]
    image: Callable[[str, bytes], bytes]
    setup: Setup
    whole: bool
    fields: dict[str, Any]


def bad(
    told: str,
    kernel: str = "store",
    *,
    kind: FindingKind = LAUNCH,
    profiles: tuple[str, ...] = ("sm_90",),
    image: Callable[[str, bytes], bytes] = lambda _, raw: raw,
    setup: Setup = lambda _launcher, _code: None,
    whole: bool = True,
    **fields: Any,
) -> Bad:
    return Bad(told, kernel, kind, profiles, image, setup, whole, fields)


def word(name: str, value: Any) -> Bad:
    return bad("constant bank 0 of store", words={name: value})


def release(told: str, kind: FindingKind = LAUNCH, **fields: Any) -> Bad:
    return bad(told, kind=kind, **{"RELEASE_ENABLE": (True,), "RELEASE_MEMBAR_TYPE": (1,)} | fields)


def off_alignment(_: Launcher, code: Code) -> dict[str, Any]:
    return {"PROGRAM_ADDRESS_LOWER": (code.at(".text.store") + 0x40) & 0xFFFF_FFFF}


def stray(launcher: Launcher, _: Code) -> dict[str, Any]:
    content = bytearray(launcher.bank0(bytes(12), (1, 1, 1), (1, 1, 1)))
    content[0x100] = 1
    return {"bank0": launcher.place(bytes(content))}


def unaligned_bank(launcher: Launcher, _: Code) -> dict[str, Any]:
    first = launcher.place(launcher.bank0(bytes(12), (1, 1, 1), (1, 1, 1)), 64) + 64
    return {"bank0": first if first % 256 else first + 64}


def flip(launcher: Launcher, code: Code) -> None:
    code.memory.view[code.at(".text.store") - code.memory.va + 5] ^= 1


def bank_2(content: bytes) -> Setup:
    return lambda launcher, _: {"banks": {2: (launcher.place(content), len(content))}}


def windows(shared: int | None = None, local: int | None = None) -> Setup:
    def setup(launcher: Launcher, _: Code) -> None:
        for address, va in (
            (M.SET_SHADER_SHARED_MEMORY_WINDOW_A, shared),
            (M.SET_SHADER_LOCAL_MEMORY_WINDOW_A, local),
        ):
            if va is not None:
                launcher.ring.push(set_pair(address, va), ring=False)

    return setup


def backed(launcher: Launcher, _: Code) -> None:
    launcher.local(0x600 * 32 * 64 * 2)


def sizes(*words: int) -> Setup:
    def setup(launcher: Launcher, _: Code) -> None:
        backing = launcher.client.memory(0x24_0000 * launcher.client.machine.gpus[0].profile.tpcs)
        launcher.ring.push(set_pair(M.SET_SHADER_LOCAL_MEMORY_A, backing.va), ring=False)
        launcher.ring.push(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, *words), ring=False)

    return setup


def other_base(profile: str, raw: bytes) -> bytes:
    at = record(raw, ".nv.info.store", InfoAttribute.PARAM_CBANK) + 8
    assert struct.unpack_from("<H", raw, at) == (PARAM_BASE[profile],)
    return patched(raw, {at: struct.pack("<H", PARAM_BASE[profile] + 0x10)})


def no_parameters(profile: str, raw: bytes) -> bytes:
    size = record(raw, ".nv.info.store", InfoAttribute.PARAM_CBANK) + 10
    bank = header_of(raw, ".nv.constant0.store") + 0x20
    return patched(raw, {size: struct.pack("<H", 0), bank: struct.pack("<Q", PARAM_BASE[profile])})


def bank_0_of_words(launcher: Launcher, _: Code) -> dict[str, Any]:
    return {"CONSTANT_BUFFER_SIZE_SHIFTED4": (PARAM_BASE[launcher.profile] >> 4,)}


def few_registers(launcher: Launcher, code: Code) -> dict[str, Any]:
    old = launcher.client.generation.qmd == "V03"
    return {
        "REGISTER_COUNT_V" if old else "REGISTER_COUNT": Cubin.parse(code.raw).kernels["store"].registers - 1
    }


def second_release(launcher: Launcher, _: Code) -> dict[str, Any]:
    if launcher.profile == "sm_80":
        return {"RELEASE2_ENABLE": True, "RELEASE2_STRUCTURE_SIZE": 1, "RELEASE2_PAYLOAD64B": True}
    third = {"RELEASE_ENABLE": (False, False, True), "RELEASE_STRUCTURE_SIZE": (0, 0, 1)}
    return third | {"RELEASE_PAYLOAD64B": (False, False, True)}


def prefetch(va: int, size: int) -> dict[str, int]:
    return split("PROGRAM_PREFETCH_ADDR", va >> 8, "_SHIFTED") | {"PROGRAM_PREFETCH_SIZE": size >> 8}


NO_WINDOW = {"shared_window": 0, "local_window": 0}
BAD: dict[str, Bad] = {
    "version": bad("QMD version 3.0: Emulated H200 takes 4.0", QMD_MAJOR_VERSION=3),
    "minor version": bad("QMD version 4.1: Emulated H200 takes 4.0", QMD_MINOR_VERSION=1),
    "type queue": bad("the descriptor launches no grid", QMD_TYPE=0),
    "type unknown": bad("QMD_TYPE = 0x7: not a QmdType", QMD_TYPE=7),
    "a field of the hardware's own": bad("HW_ONLY_INNER_GET = 1: nothing that is emulated sets it",
        HW_ONLY_INNER_GET=1),
    "resume state": bad("GRID_WIDTH_RESUME = 1: nothing", GRID_WIDTH_RESUME=1),
    "reserved bits of a release": bad("RELEASE_RESERVED_INFO = (1, 0, 0): nothing", RELEASE_RESERVED_INFO=(1,
        )),
    "a latch": bad("WAIT_ON_LATCH_ID = 1: nothing", WAIT_ON_LATCH_ID=1),
    "a circular queue": bad("CIRCULAR_QUEUE_SIZE = 1: nothing", CIRCULAR_QUEUE_SIZE=1),
    "another machine code": bad("SASS_VERSION 0x80 is not 0x90", SASS_VERSION=0x80),
    "an empty grid": bad("grid (0, 1, 1) or block (1, 1, 1)", GRID_WIDTH=0),
    "a wide grid": bad("wider", GRID_WIDTH=1 << 31),
    "an empty block": bad("block (1, 0, 1) of CTA_THREAD_DIMENSION0 to 2", CTA_THREAD_DIMENSION1=0),
    "too many threads": bad("block (1025, 1, 1)", CTA_THREAD_DIMENSION0=1025),
    "too deep a block": bad("block (1, 1, 65)", CTA_THREAD_DIMENSION2=65),
    "another block": bad("reqntid", "fixed"),
    "shared memory off its step": bad("SHARED_MEMORY_SIZE 0x180 is no multiple of 0x100",
        SHARED_MEMORY_SIZE=0x180),
    "a carve-out that does not exist": bad("MIN_SM_CONFIG_SHARED_MEM_SIZE 0x2 is no carve-out",
        MIN_SM_CONFIG_SHARED_MEM_SIZE=2, TARGET_SM_CONFIG_SHARED_MEM_SIZE=2),
    "carve-outs out of order": bad("carve-outs (9, 3, 58) are not in order", MIN_SM_CONFIG_SHARED_MEM_SIZE=9,
        TARGET_SM_CONFIG_SHARED_MEM_SIZE=3),
    "too small a carve-out": bad("0x8000 bytes shared does not fit a carve-out of 8 KiB",
        SHARED_MEMORY_SIZE=0x8000, MIN_SM_CONFIG_SHARED_MEM_SIZE=sm_config(8),
        TARGET_SM_CONFIG_SHARED_MEM_SIZE=sm_config(8)),
    "too few registers": bad("store needs 8 registers, the descriptor gives 1", REGISTER_COUNT=1),
    "too many registers": bad("the descriptor gives 256", REGISTER_COUNT=256),
    "registers beyond an SM": bad("fit an SM", block=(1024, 1, 1), REGISTER_COUNT=255),
    "a register less than the image needs": bad("registers, the descriptor gives", profiles=ALL,
        setup=few_registers),
    "an image without a register count": bad("how many registers store needs", image=lambda _,
        raw: patched(raw, {record(raw, ".nv.info", InfoAttribute.REGCOUNT) + 1: b"\x50"})),
    "few barriers": bad("barriers", "reverse", shared=0x600, BARRIER_COUNT=0),
    "little static shared memory": bad("reverse needs 0x600 bytes shared, the descriptor gives 0x500",
        "reverse", profiles=ALL, shared=0x500),
    "no room for dynamic memory": bad("0x101 bytes of dynamic shared memory, room is for 0x100", "reverse",
        profiles=ALL, shared=0x700, words={"dynamic_shared_size": 0x101}),
    "dynamic memory without a window": bad("shared_window is 0", profiles=("sm_80", "sm_120"), shared=0x800,
        words={"shared_window": 0}),
    "code that reads the window": bad("shared_window is 0", "reverse", profiles=("sm_80", "sm_120"),
        shared=0x600, words={"shared_window": 0}),
    "a bank without bytes": bad("constant bank 0 has 0x0 bytes, wanted 0x10",
        CONSTANT_BUFFER_SIZE_SHIFTED4=(0,)),
    "a bank of more than 64 KiB": bad("constant bank 0 has 0x10010 bytes, wanted",
        CONSTANT_BUFFER_SIZE_SHIFTED4=(0x1001,)),
    "a bank that was declared alone": bad("constant bank 2 has 0x0 bytes, wanted 0x10",
        CONSTANT_BUFFER_VALID=(True, False, True)),
    "no bank 0": bad("constant bank 0 has 0x0 bytes, store reads 0x21c", CONSTANT_BUFFER_VALID=(False,)),
    "a bank that is not mapped": bad("which is not mapped", kind=FAULT, bank0=0x1_0000_0000),
    "a bank off its alignment": bad("is not aligned to 256 bytes", profiles=("sm_80",), setup=unaligned_bank),
    "stray bytes in bank 0": bad("no field declares it", setup=stray),
    "a short bank 0": bad("bytes, store reads", profiles=ALL, setup=bank_0_of_words),
    "a short bank 0 of text": bad("store reads 12 bytes of parameters, bank 0 has 0 after the driver's words",
        profiles=ALL, image=no_parameters, setup=bank_0_of_words),
    "another base of parameters": bad("the parameters of store", profiles=ALL, image=other_base),
    "no bank of the image": bad("constant bank", "constants"),
    "no table of jumps": bad("the image has 0x20 bytes for constant bank 2, bound are 0x0", "jumps"),
    "another table of jumps": bad("constant bank 2 does not hold .nv.constant2.jumps of jumps", "jumps",
        setup=bank_2(bytes(32))),
    "a table of another kernel": bad("constant bank 2 is bound, the image has none", setup=bank_2(bytes(32))),
    "a release without a membar": bad("release 0 without any membar", kind=FindingKind.COHERENCE,
        RELEASE_ENABLE=(True,), CWD_MEMBAR_TYPE=0),
    "a wide payload in one word": release("release 0: one word with a payload of 64 bits",
        RELEASE_STRUCTURE_SIZE=(1,), RELEASE_PAYLOAD64B=(True,)),
    "a narrow payload in two words": release("release 0: two words with a payload of 32 bits", UNSUPPORTED,
        RELEASE_STRUCTURE_SIZE=(2,)),
    "a reduction of four words": release("release 0: a reduction of four words", UNSUPPORTED,
        RELEASE_REDUCTION_ENABLE=(True,)),
    "an operation without reduction": release("release 0: reduction bits without reduction",
        RELEASE_REDUCTION_OP=(1,)),
    "a condition of a trap": release("release 0: trap type 2", UNSUPPORTED, RELEASE_TRAP_TYPE=(2,)),
    "an unknown structure": release("not a SemaphoreSize", RELEASE_STRUCTURE_SIZE=(3,)),
    "a release off its alignment": release("the grid's release at 0x200000008 must be aligned to 16 bytes",
        RELEASE_SEMAPHORE0_ADDR_LOWER=8, RELEASE_SEMAPHORE0_ADDR_UPPER=2),
    "the second release": release("release 1: trap type 3", UNSUPPORTED, RELEASE_ENABLE=(False, True),
        RELEASE_MEMBAR_TYPE=(0, 1), RELEASE_TRAP_TYPE=(0, 3)),
    "releases of other versions": bad("release 2: one word", profiles=("sm_80", "sm_120"),
        setup=second_release),
    "an unknown membar": bad("not a MembarType", CWD_MEMBAR_TYPE=2),
    "an unknown prefetch of a bank": bad("ConstantPrefetch", CONSTANT_BUFFER_PREFETCH=(3,)),
    "a dependent action": bad("QMD_DECREMENT_DEPENDENCE: 4> is not emulated", kind=UNSUPPORTED,
        DEPENDENT_QMD_ENABLE=(True,), DEPENDENT_QMD_ACTION=(4,)),
    "a dependent at 0": bad("the launch descriptor touches [0x0, ", kind=FAULT, DEPENDENT_QMD_ENABLE=(True,),
        DEPENDENT_QMD_ACTION=(1,)),
    "a second dependent of ampere": bad("no pointer", profiles=("sm_80",), DEPENDENT_QMD1_ENABLE=True,
        DEPENDENT_QMD1_ACTION=1),
    "ntid": word("ntid", (2, 1, 1)),
    "nctaid": word("nctaid", (1, 2, 1)),
    "shared_window": word("shared_window", 4),
    "local_window": word("local_window", 4),
    "global_descriptor": word("global_descriptor", 5),
    "nsmid": word("nsmid", 5),
    "constant_bank_3": word("constant_bank_3", 4096),
    "reserved_shared_size": word("reserved_shared_size", 1),
    "dynamic_shared_size": word("dynamic_shared_size", 64),
    "code of no image": bad("no image was uploaded", whole=False),
    "code with one wrong byte": bad("byte 0x5 differs", setup=flip),
    "code of another architecture": bad("sm_80", image=lambda _, _raw: cubin("sm_80", STORE)),
    "an image without PTX": bad("no PTX", kind=UNSUPPORTED, image=lambda _,
        raw: raw[::-1].replace(b"8 noisrev.", b"8 NOISREV.", 1)[::-1]),
    "an image whose PTX lacks the kernel": bad("store cannot be launched", image=lambda _,
        raw: raw.replace(b".entry store", b".entry other", 1)),
    "a program that is not mapped": bad("the program address 0x9", kind=FAULT, PROGRAM_ADDRESS_UPPER=9),
    "a program off its alignment": bad("is not aligned to 128 bytes", setup=off_alignment),
    "a size of prefetch alone": bad("the code prefetched, [0x0, +0x100), is not the program",
        PROGRAM_PREFETCH_SIZE=1),
    "a prefetch of other code": bad("is not the program at", profiles=ALL, setup=lambda _,
        code: prefetch((code.at(".text.store") & -256) + 0x400, 0x200)),
    "a prefetch that is not mapped": bad("the prefetch of code touches", kind=FAULT, profiles=ALL,
        setup=lambda _, code: prefetch(code.memory.va - 0x100, 0x1_0000)),
    **{f"a stack of {low:#x}, {high:#x}": bad(
        f"stack needs 0x200 bytes of stack, the descriptor gives {(low, high)}", "stack", profiles=ALL,
        setup=backed, low=low, high=high) for low, high in ((0, 0), (0x1F0, 0), (0, 0x1F0))},
    **{f"a stack pointer {pointer:#x} of {kw}": bad(f"the stack pointer {pointer:#x} fits neither", "stack",
        profiles=ALL, setup=backed, words={"stack_pointer": pointer}, **({"low": 0} | kw)) for kw,
        pointer in (({"low": 0x200}, 0), ({"low": 0x200}, 0x240), ({"high": 0x430}, 0xFFFDC0),
        ({"high": 0x440}, 0x200))},
    "a stack off its step": bad("multiple", "stack", setup=backed, low=0x208),
    "a stack without a window": bad("local_window is 0", "stack", setup=backed, words={"stack_pointer": 0x200,
        "local_window": 0}),
    "local memory off its step": bad("in steps of 0x8000", "stack", profiles=ALL, setup=sizes(0, 0x20_4000,
        0xFF)),
    "little local memory": bad("needs 0x200000", "stack", profiles=ALL, setup=sizes(0, 0x1F_8000, 0xFF)),
    "local memory of one SM": bad("1 SMs: wanted", "stack", profiles=ALL, setup=sizes(0, 0x20_0000, 1)),
    "local memory of no SMs": bad("was never set", "stack", profiles=ALL, setup=sizes(0, 0x20_0000)),
    "a local window of zero": bad("zero", profiles=ALL, setup=windows(local=0), words={"local_window": 0}),
    "a local window off its alignment": bad("not aligned to 0x1000000", profiles=ALL,
        setup=windows(local=LOCAL_WINDOW + 4096), words={"local_window": 0}),
    **{f"windows at {shared:#x}, {local:#x}": bad("windows overlap", setup=windows(shared, local),
        words=NO_WINDOW) for shared, local in ((SHARED_WINDOW, SHARED_WINDOW), (SHARED_WINDOW, SHARED_WINDOW
        + (1 << 24)))},
    "clusters of nothing": bad("clusters of", QMD_TYPE=3),
    "a width of clusters alone": bad("GPC_CGA_WIDTH", GPC_CGA_WIDTH=2),
    "cluster_nctaid": bad("cluster_nctaid is (2, 1, 1), wanted (1, 1, 1) or nothing",
        words={"cluster_nctaid": (2, 1, 1)}),
    "nclusterid": bad("nclusterid is (1, 1, 1), wanted (3, 2, 1) or nothing", grid=(3, 2, 1),
        words={"nclusterid": (1, 1, 1)}),
    "cluster_nctarank": bad("cluster_nctarank is 2, wanted 1 or nothing", words={"cluster_nctarank": 2}),
}  # fmt: skip
CLUSTERED: list[tuple[str, dict[str, Any]]] = [
    ("whole number of clusters", {"grid": (6, 1, 1)} | cluster((4, 1, 1))),
    ("at most, 8 are portable", {"grid": (32, 1, 1)} | cluster((32, 1, 1))),
    ("1 at least", cluster((0, 1, 1))),
    ("wanted GRID_GPC_CGA", cluster((4, 1, 1), kind=2)),
    ("cluster_nctaid is", {"words": {"cluster_nctaid": (2, 1, 1)}} | cluster((4, 1, 1))),
    ("cluster_nctarank is 4, wanted 1 or nothing", {"words": {"cluster_nctarank": 4}}),
    ("wanted the same", cluster((4, 1, 1)) | {"GPU_CGA_WIDTH": 2}),
]  # fmt: skip
NEW = ("sm_90", "sm_120")
BAD |= {f"clusters: {told}": bad(told, "plain", profiles=NEW, **fields) for told, fields in CLUSTERED}
BAD |= {
    "clusters across GPCs": bad("across GPCs", "plain", kind=UNSUPPORTED, profiles=NEW, **cluster((4, 1, 1),
        kind=4)),
    "sixteen workgroups a cluster": bad("at most, 8 are portable", "plain", profiles=("sm_120",), grid=(16, 1,
        1), **cluster((16, 1, 1))),
    "a word of clusters that code reads": bad("cluster_nctarank is 0, wanted 4", "neighbour", profiles=NEW,
        **cluster((4, 1, 1))),
    "a kernel that requires clusters": bad("reqnctapercluster", "bound", profiles=NEW),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("profile", "row"),
    [pytest.param(one, row, id=f"{what}-{one}") for what, row in BAD.items() for one in row.profiles],
)
def test_a_wrong_launch_is_refused(make: Callable[..., Client], profile: str, row: Bad) -> None:
    launcher = Launcher.make(make(profile).up())
    raw = row.image(profile, cubin(profile, KERNELS[row.kernel]))
    code = upload(launcher.client, raw, whole=row.whole)
    fields = SHAPES.get(row.kernel, {}) | row.fields
    fields |= row.setup(launcher, code) or {}
    launcher.fails(code, row.kernel, struct.pack("<QI", launcher.client.memory(4096).va, 1), **fields)
    report = launcher.client.machine.fatal[0]
    assert row.told in str(report)
    assert report.kind is row.kind
    assert launcher.ring.error() == (RcCode.MMU_FAULT if row.kind is FAULT else RcCode.GR_EXCEPTION)
