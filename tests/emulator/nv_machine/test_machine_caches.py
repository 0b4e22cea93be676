"""Cache maintenance: each omission is reported, and correct maintenance is not (docs/facts/nv-caches.md)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.host import HostMethod
from emulator.ir.library import Sanitizers
from emulator.nv.engines.caches import through_l1
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, method, sem, wait_word
from tests.emulator.nv_machine.launching import CALL, cubin, upload
from tests.emulator.nv_machine.rig import Rig

FETCH = """
.visible .entry {name}(.param .u64 at) {{
 .reg .b32 %r<2>; .reg .b64 %d<2>;
 ld.param.u64 %d0, [at]; {before} ld.{how}.u32 %r0, [%d0]; st.global.u32 [%d0+1024], %r0; ret;
}}
"""
HOLD = """
.visible .entry hold(.param .u64 at) {
 .reg .b32 %r<2>; .reg .b64 %d<2>; .reg .pred %p;
 ld.param.u64 %d0, [at]; ld.global.u32 %r0, [%d0];
L: ld.volatile.global.u32 %r1, [%d0+4]; setp.eq.u32 %p, %r1, 0; @%p bra L; st.global.u32 [%d0+1024], %r0; ret;
}
"""
WAYS = {
    "fetch": "global",
    "fetch_nc": "global.nc",
    "fetch_cta": "relaxed.cta.global",
    "fetch_cg": "global.cg",
    "fetch_cv": "global.cv",
    "fetch_volatile": "volatile.global",
    "fetch_gpu": "relaxed.gpu.global",
}
PARAM_AT = 0x210
"""Offset of the parameters in bank 0 of sm_90."""
QUIET = {"INVALIDATE_SHADER_CONSTANT_CACHE": False}

Make = Callable[..., Client]


def rig(client: Client) -> Rig:
    fetches = (FETCH.format(name=n, how=how, before="") for n, how in WAYS.items())
    return Rig(client, HOLD, *fetches)


def run(bench: Rig, *words: list[int]) -> None:
    """Run methods on the compute channel to the end; fail at any report."""
    bench.launcher.finish([word for some in words for word in some])


def fails(bench: Rig, *words: list[int]) -> str:
    """Run methods that must be reported; return the report."""
    bench.launcher.ring.push([word for some in words for word in some])
    bench.launcher.ring.wait_error()
    (report,) = bench.client.kernel.reports
    assert report.kind is FindingKind.COHERENCE
    return report.message


def copied(bench: Rig, source: int, target: int) -> None:
    """Copy a dword by the copy engine, to its end."""
    (number,) = struct.unpack_from("<Q", bench.signals.view)
    bench.copies.push(bench.copy(source, target) + bench.done(0, number + 1))
    wait_word(bench.signals, 0, number + 1, bench.client)


def write(bench: Rig, va: int, value: int, who: str) -> None:
    """Write a dword, to its end."""
    at = va - bench.data.va
    bench.data.view[512:516] = struct.pack("<I", value)
    if who == "copy":
        copied(bench, 512, at)
    elif who == "inline upload":
        run(bench, bench.upload(at, value))
    elif who == "kernel store":
        run(bench, bench.launch("store", at, value=value, **QUIET))
    else:
        memory = next(
            m for m in (bench.data, bench.launcher.arguments, bench.code.memory) if m.va <= va < m.va + m.size
        )
        memory.view[va - memory.va : va - memory.va + 4] = struct.pack("<I", value)


WRITERS = {
    "host": "the host",
    "copy": "transfer on",
    "inline upload": "inline upload on",
    "kernel store": "kernel store on",
}


@pytest.fixture
def bench(make: Make) -> Rig:
    return rig(make(checks=Sanitizers.all()).up())


def idle() -> list[int]:
    return method(1, M.WAIT_FOR_IDLE, 0)


def bank(bench: Rig) -> int:
    """Run a kernel with a bank that stays; its address."""
    first = bench.launcher.place(bench.launcher.bank0(bench.params(), (1, 1, 1), (1, 1, 1)))
    run(bench, bench.launch("store", bank0=first))
    return first


ALONE = "by the launch's own action"
"""The words of a report that a launch relies on a fact from only one source."""
NO_CURES: dict[str, tuple[list[int], int, str]] = {
    "nothing": ([], 9, "as old as when kernel store read it"),
    "of instructions": (method(1, M.INVALIDATE_SHADER_CACHES, 1), 9, "as old as when kernel store read it"),
    "of data": (method(1, M.INVALIDATE_SHADER_CACHES, 1 << 4), 9, "as old as when kernel store read it"),
    "by action 3": ([], 3, ALONE),
    "by action 10": ([], 0xA, ALONE),
}
"""Invalidation -> its methods, the action of the launch, the words of the report."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("cure", NO_CURES)
@pytest.mark.parametrize("who", WRITERS)
def test_a_rewritten_bank_that_is_not_invalidated_is_reported(bench: Rig, who: str, cure: str):
    words, action, told = NO_CURES[cure]
    first = bank(bench)
    write(bench, first + PARAM_AT + 8, 9, who)
    text = fails(bench, words, bench.launch("store", bank0=first, action=action, **QUIET))
    assert f"constant bank 0 of kernel store at {first + PARAM_AT + 8:#x} (+{PARAM_AT + 8:#x})" in text
    assert told in text
    assert (ALONE in text) is ("one source" in text) is (told is ALONE)
    assert WRITERS[who] in text
    assert "CONSTANT_BUFFER_INVALIDATE[0]" in text


CONSTANT_CURES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "of the bank": ({"CONSTANT_BUFFER_INVALIDATE": (True,)}, []),
    "of all": ({"INVALIDATE_SHADER_CONSTANT_CACHE": True}, []),
    "by a method": ({}, method(1, M.INVALIDATE_SHADER_CACHES, 1 << 12)),
    "by a method that does not wait": ({}, method(1, M.INVALIDATE_SHADER_CACHES_NO_WFI, 1 << 12)),
}


@pytest.mark.parametrize("cure", CONSTANT_CURES)
def test_a_rewritten_bank_with_an_invalidation_is_accepted(bench: Rig, cure: str):
    fields, words = CONSTANT_CURES[cure]
    first = bank(bench)
    write(bench, first + PARAM_AT + 8, 9, "host")
    run(bench, words, bench.launch("store", bank0=first, **(QUIET | fields)))
    assert bench.data.view[0] == 9
    assert bench.client.kernel.reports == []


def test_a_bank_that_overlaps_an_older_one_is_reported(bench: Rig):
    first = bank(bench)
    content = bench.launcher.bank0(bench.params(), (1, 1, 1), (1, 1, 1))
    at = first + 256 - bench.launcher.arguments.va
    bench.launcher.arguments.view[at : at + len(content)] = content
    bench.launcher.used = -(-(at + len(content)) // 256) * 256
    text = fails(bench, bench.launch("store", bank0=first + 256, **QUIET))
    assert "constant bank 0" in text


def test_a_bank_rewritten_with_equal_bytes_is_not_reported(bench: Rig):
    first = bank(bench)
    write(bench, first + PARAM_AT + 8, 9, "host")
    write(bench, first + PARAM_AT + 8, 1, "host")
    run(bench, bench.launch("store", bank0=first, **QUIET))
    assert bench.client.kernel.reports == []


def test_a_rewritten_bank_of_a_dependent_launch_that_only_its_action_invalidates_is_reported(bench: Rig):
    first = bank(bench)
    write(bench, first + PARAM_AT + 8, 9, "host")
    launcher = bench.launcher
    second = launcher.qmd(launcher.descriptor(bench.code, "store", bench.params(), bank0=first, **QUIET))
    dependent = {
        "DEPENDENT_QMD_ENABLE": (True,),
        "DEPENDENT_QMD_ACTION": (3,),
        "DEPENDENT_QMD0_POINTER": second >> 8,
    }
    text = fails(bench, bench.launch("store", **dependent, **QUIET))
    assert "constant bank 0 of kernel store" in text
    assert ALONE in text


def test_an_action_does_not_empty_a_cache_for_the_launches_after_it(bench: Rig):
    first = bank(bench)
    run(bench, bench.launch("increment", action=0xA, **QUIET))
    write(bench, first + PARAM_AT + 8, 9, "host")
    assert ALONE not in fails(bench, bench.launch("store", bank0=first, **QUIET))


@pytest.mark.parametrize("action", [3, 0xA])
def test_by_default_a_bank_that_only_the_action_invalidates_gets_advice(make: Make, action: int):
    bench = rig(make().up())
    first = bank(bench)
    for value in (9, 10):
        write(bench, first + PARAM_AT + 8, value, "host")
        run(bench, bench.launch("store", bank0=first, action=action, **QUIET))
    assert bench.data.view[0] == 10
    (text,) = bench.told(FindingKind.ADVICE)
    assert "constant bank 0 of kernel store" in text
    assert ALONE in text


def overwrite(bench: Rig, at: int) -> None:
    """Store the code of `increment` over that of `store`, or after it."""
    section = bench.code.elf.section(".text.increment")
    assert section is not None
    start = bench.code.at(".text.store") + at - bench.code.memory.va
    bench.code.memory.view[start : start + section.size] = bench.code.elf.content(section)


def over(bench: Rig, at: int, **fields: Any) -> list[int]:
    va = bench.code.at(".text.store") + at
    return bench.launch("increment", **({"PROGRAM_ADDRESS_LOWER": va & 0xFFFF_FFFF} | fields))


@pytest.mark.parametrize("action", [9, 3, 0xA])
@pytest.mark.parametrize("at", [0, 128])
def test_code_written_over_code_without_an_invalidation_is_reported(bench: Rig, at: int, action: int):
    run(bench, bench.launch("store"))
    overwrite(bench, at)
    text = fails(bench, over(bench, at, action=action))
    assert "the code of kernel increment" in text
    assert "as old as when kernel store read it" in text
    assert (ALONE in text) is (action != 9)
    assert "INVALIDATE_INSTRUCTION_CACHE" in text


def test_by_default_code_that_only_the_action_invalidates_gets_advice(make: Make):
    bench = rig(make().up())
    run(bench, bench.launch("store"))
    overwrite(bench, 0)
    run(bench, over(bench, 0, action=0xA))
    (text,) = bench.told(FindingKind.ADVICE)
    assert "the code changed since store ran there" in text
    assert ALONE in text


@pytest.mark.parametrize("how", ["descriptor", "method", "method that does not wait"])
def test_code_written_over_code_with_an_invalidation_is_accepted(bench: Rig, how: str):
    run(bench, bench.launch("store"))
    overwrite(bench, 128)
    words = {
        "method": method(1, M.INVALIDATE_SHADER_CACHES, 1),
        "method that does not wait": method(1, M.INVALIDATE_SHADER_CACHES_NO_WFI, 1),
    }.get(how, [])
    run(bench, words, over(bench, 128, INVALIDATE_INSTRUCTION_CACHE=how == "descriptor"))
    assert bench.client.kernel.reports == []


def test_code_written_over_a_called_function_is_reported(bench: Rig):
    code = upload(bench.client, cubin(bench.launcher.profile, CALL))
    names = [s.name for s in code.elf.sections if s.name.startswith(".text.") and s.name != ".text.calls"]
    if not names:
        pytest.skip("the assembler put the function into its caller")
    run(bench, bench.launch("calls", code=code))
    at = code.at(names[0]) - code.memory.va
    code.memory.view[at] ^= 1
    bench.launcher.ring.push(bench.launch("calls", code=code))
    bench.launcher.ring.wait_error()
    assert bench.client.kernel.reports[0].kind is FindingKind.COHERENCE


@pytest.mark.sampled(3)
@pytest.mark.parametrize("who", WRITERS)
@pytest.mark.parametrize("kernel", ["fetch", "fetch_nc", "fetch_cta"])
def test_a_load_of_a_stale_cache_line_is_reported(bench: Rig, who: str, kernel: str):
    run(bench, bench.launch("fetch"))
    write(bench, bench.data.va, 9, who)
    text = fails(bench, bench.launch(kernel))
    assert f"kernel {kernel}" in text
    assert f"ld.{WAYS[kernel]}.u32 %r0, [%d0]" in text
    assert f"{bench.data.va:#x}" in text
    assert "as old as when kernel fetch read it" in text
    assert WRITERS[who] in text
    assert "INVALIDATE_SHADER_DATA_CACHE" in text


LOAD_CURES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "descriptor": ({"INVALIDATE_SHADER_DATA_CACHE": True}, []),
    "method": ({}, method(1, M.INVALIDATE_SHADER_CACHES, 1 << 4)),
    "method that does not wait": ({}, method(1, M.INVALIDATE_SHADER_CACHES_NO_WFI, 1 << 4)),
}


@pytest.mark.parametrize("cure", LOAD_CURES)
def test_a_load_after_an_invalidation_is_not_reported(bench: Rig, cure: str):
    fields, words = LOAD_CURES[cure]
    run(bench, bench.launch("fetch"))
    write(bench, bench.data.va, 9, "host")
    run(bench, words, bench.launch("fetch", **fields))
    write(bench, bench.data.va, 10, "kernel store")
    run(bench, words, bench.launch("fetch", **fields))
    assert bench.data.view[1024] == 10
    assert bench.client.kernel.reports == []


def test_an_invalidation_before_the_load_that_fills_does_not_help(bench: Rig):
    run(bench, method(1, M.INVALIDATE_SHADER_CACHES, 1 << 4), bench.launch("fetch"))
    write(bench, bench.data.va, 9, "host")
    assert "kernel fetch" in fails(bench, bench.launch("fetch"))


def test_loads_of_a_running_grid_survive_a_non_waiting_invalidation(bench: Rig):
    early = method(1, M.INVALIDATE_SHADER_CACHES_NO_WFI, 1 << 4)
    bench.launcher.ring.push(bench.launch("hold") + early + sem(bench.data.va + 3072, 1))
    wait_word(bench.data, 3072, 1, bench.client)
    bench.data.view[4] = 1
    run(bench, idle())
    write(bench, bench.data.va, 9, "host")
    assert "kernel fetch" in fails(bench, bench.launch("fetch"))


@pytest.mark.parametrize("kernel", ["fetch_cg", "fetch_cv", "fetch_volatile", "fetch_gpu"])
def test_loads_past_the_l1_neither_fill_nor_hit_it(bench: Rig, kernel: str):
    for first, then in (("fetch", kernel), (kernel, "fetch")):
        run(bench, method(1, M.INVALIDATE_SHADER_CACHES, 1 << 4), bench.launch(first))
        write(bench, bench.data.va, 9 + (first == kernel), "host")
        run(bench, bench.launch(then))
    assert bench.client.kernel.reports == []


def test_different_dwords_and_equal_values_are_not_reported(bench: Rig):
    run(bench, bench.launch("fetch"))
    write(bench, bench.data.va + 4, 9, "host")
    run(bench, bench.launch("fetch"), idle(), bench.launch("fetch", 8))
    assert bench.client.kernel.reports == []


def test_a_grid_may_load_what_it_stored_itself(bench: Rig):
    run(bench, bench.launch("increment"))
    run(bench, bench.launch("increment"))
    assert bench.data.view[0] == 2
    assert bench.client.kernel.reports == []


def test_a_kernel_with_a_fence_is_left_alone(bench: Rig):
    text = FETCH.format(name="fetch", how="global", before="fence.acq_rel.gpu;")
    fenced = upload(bench.client, cubin(bench.launcher.profile, text))
    run(bench, bench.launch("fetch"))
    write(bench, bench.data.va, 9, "host")
    run(bench, bench.launch("fetch", code=fenced))
    assert bench.client.kernel.reports == []


@pytest.mark.parametrize("action", [3, 0xA])
def test_a_load_that_only_the_launch_action_invalidates_is_reported(bench: Rig, action: int):
    run(bench, bench.launch("fetch"))
    write(bench, bench.data.va, 9, "host")
    text = fails(bench, bench.launch("fetch", action=action))
    assert "through the L1" in text
    assert ALONE in text


@pytest.mark.parametrize("cached", [True, False])
def test_ampere_may_keep_loads_out_of_the_l1(make: Make, cached: bool):  # noqa: FBT001 - a case
    bench = rig(make("sm_80", checks=Sanitizers.all()).up())
    run(bench, bench.launch("fetch", SM_GLOBAL_CACHING_ENABLE=cached))
    write(bench, bench.data.va, 9, "host")
    again = bench.launch("fetch", SM_GLOBAL_CACHING_ENABLE=cached)
    if cached:
        assert "kernel fetch" in fails(bench, again)
    else:
        run(bench, again)
        assert bench.client.kernel.reports == []


@pytest.mark.parametrize(
    ("text", "through"),
    [
        ("ld.global.f32 %f1, [%rd1]", True),
        ("@%p1 ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];", True),
        ("cp.async.ca.shared.global [%r1], [%rd1], 4;", True),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16;", False),
        ("ld.const.u32 %r1, [%rd1];", False),
        ("ld.acquire.sys.global.u32 %r1, [%rd1];", False),
        ("ld.global.L1::no_allocate.u32 %r1, [%rd1];", True),
        ("@!%p st.global.u32 [%rd1], %r1;", False),
    ],
)
def test_which_instructions_load_through_the_l1(text: str, through: bool):  # noqa: FBT001 - a case
    assert through_l1(text) is through


NONE = {"CWD_MEMBAR_TYPE": 0}


def report(bench: Rig, flags: int, kind: str) -> list[int]:
    """Return a report semaphore of one word."""
    at = bench.data.va + 3072
    if kind == "SET_REPORT_SEMAPHORE_D":
        return method(1, M.SET_REPORT_SEMAPHORE_A, at >> 32, at & 0xFFFF_FFFF, 3, 1 << 28 | flags << 2)
    words = method(1, M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 3, 0, at & 0xFFFF_FFFF, at >> 32)
    return words + method(1, M.REPORT_SEMAPHORE_EXECUTE, 1 << 3 | flags << 5)


KINDS = ["SET_REPORT_SEMAPHORE_D", "REPORT_SEMAPHORE_EXECUTE"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_without_flush_or_membar_after_stores_is_reported(bench: Rig, kind: str):
    text = fails(bench, bench.launch("store", **NONE), report(bench, 1, kind))
    assert "FLUSH_DISABLE" in text
    assert "kernel store" in text
    assert "L1_NONE" in text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["a membar of the grid", "a flush", "a flush before"])
def test_stores_that_something_flushes_are_not_reported(bench: Rig, kind: str, what: str):
    fields = {} if what == "a membar of the grid" else NONE
    flush = {"a flush": report(bench, 0, kind), "a flush before": report(bench, 0, kind)}.get(what, [])
    rest = [] if what == "a flush" else report(bench, 1, kind)
    run(bench, bench.launch("store", **fields), flush, rest)
    assert bench.data.view[3072] == 3
    assert bench.client.kernel.reports == []


def test_a_grid_that_stores_nothing_needs_no_membar(bench: Rig):
    run(bench, bench.launch("store"))
    empty = upload(
        bench.client, cubin(bench.launcher.profile, ".visible .entry empty(.param .u64 at) { ret; }")
    )
    run(bench, bench.launch("empty", code=empty, **NONE), report(bench, 1, KINDS[0]))
    assert bench.client.kernel.reports == []


@pytest.mark.parametrize("flags", [0x41, 1])
def test_an_inline_upload_without_a_membar_is_reported(bench: Rig, flags: int):
    words = [bench.upload(0, 7, flags=flags), report(bench, 1, KINDS[0])]
    if flags == 1:
        run(bench, *words)
        assert bench.client.kernel.reports == []
    else:
        assert "SYSMEMBAR_DISABLE" in fails(bench, *words)


@pytest.mark.parametrize("wait", ["WFI", "WAIT_FOR_IDLE"])
@pytest.mark.parametrize("flushes", [True, False])
def test_a_host_release_behind_a_wait_publishes_nothing_without_its_membar(
    bench: Rig,
    wait: str,
    flushes: bool,  # noqa: FBT001 - a case
):
    waiting = idle() if wait == "WAIT_FOR_IDLE" else method(0, HostMethod.WFI, 1)
    words = [bench.launch("store", **NONE), waiting]
    words.append(sem(bench.data.va + 3072, 3, **({"RELEASE_WFI": True} if flushes else {})))
    if flushes:
        run(bench, *words)
        assert bench.client.kernel.reports == []
    else:
        text = fails(bench, *words)
        assert "without RELEASE_WFI" in text
        assert "kernel store" in text


def test_a_host_release_without_waits_is_no_future_release(bench: Rig):
    run(bench, bench.launch("store", **NONE), sem(bench.data.va + 3072, 3))
    assert bench.client.kernel.reports == []


@pytest.mark.parametrize(
    ("action", "prefetch", "head"),
    [(1, False, 0xA), (1, False, 9), (1, True, 0xA), (3, False, 0xA), (3, False, 9)],
)
def test_a_rewritten_dependent_descriptor_needs_a_prefetch_or_an_action_that_invalidates(
    make: Make,
    action: int,
    prefetch: bool,  # noqa: FBT001 - a case
    head: int,
):
    bench = rig(make().up())
    launcher = bench.launcher
    values = launcher.descriptor(bench.code, "store", bench.params())
    second = launcher.qmd(values)
    run(bench, launcher.send(second))
    launcher.used -= 384
    assert launcher.qmd(values | {"REGISTER_COUNT": 65}) == second
    chain = {
        "DEPENDENT_QMD_ENABLE": (True,),
        "DEPENDENT_QMD_ACTION": (action,),
        "DEPENDENT_QMD_PREFETCH": (prefetch,),
        "DEPENDENT_QMD0_POINTER": second >> 8,
    }
    words = bench.launch("increment", 4, action=head, **chain)
    if action == 3 or prefetch:
        run(bench, words)
        assert bench.client.kernel.reports == []
    else:
        assert "reused with other content" in fails(bench, words)


def test_optional_checks_are_off_by_default(make: Make):
    bench = rig(make().up())
    assert bench.client.machine.gpus[0].caches is None
    run(bench, bench.launch("fetch"))
    write(bench, bench.data.va, 9, "host")
    run(bench, bench.launch("fetch", **NONE), report(bench, 1, KINDS[0]))
    assert bench.client.kernel.reports == []


def test_optional_checks_are_part_of_all_checks() -> None:
    assert Sanitizers.all().caches
