"""The engine without a front end: a handwritten warp function, for both warp widths."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emulator.ir import jit
from emulator.ir.library import Library, Sanitizers
from emulator.ir.state import LAUNCH, THREAD
from emulator.shared.memory import AddressSpace
from emulator.simt import access, dispatch
from emulator.simt.blocks import WarpBlock
from emulator.simt.engine import Settings, TranslatedProgram, engine
from emulator.simt.launch import host_threads, launch
from emulator.simt.running import GroupMemory, RunningLaunch, prepare
from emulator.simt.warp_function import WarpFunction
from emulator.simt.work import LaunchOptions, LaunchWork
from hcq.config import config
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


WORDS = ((32, 1),)
"""The only access of the kernel here: an engine for it compiles in a tenth of the time."""


def program(settings: Settings, address: int) -> TranslatedProgram:
    """Count down from the lane number, then store thread id * 10 + the number of rounds."""
    made = engine(settings)

    def begin(wf: Any) -> None:
        wf.write("n", wf.c.op("and", wf.thread_id(0), 7))
        wf.write("rounds", wf.c.const(wf.lib.v("i32"), 0))
        wf.jump(1)

    def loop(wf: Any) -> None:
        left = wf.read("n")
        wf.write("rounds", wf.c.op("add", wf.read("rounds"), 1))
        wf.write("n", wf.c.op("sub", left, 1))
        wf.branch(wf.c.icmp("sgt", left, 0), 1, 2)

    def end(wf: Any) -> None:
        c = wf.c
        value = c.op("add", c.op("mul", wf.thread_id(0), 10), wf.read("rounds"))
        where = c.op("add", c.op("mul", c.resize(wf.thread_id(0), 64), 4), address)
        wf.store("global", where, [value], wf.site(1, "store"))
        wf.exit()

    nothing = frozenset()
    blocks = [
        WarpBlock(begin, (1,), nothing, frozenset({"n", "rounds"})),
        WarpBlock(loop, (1, 2), frozenset({"n", "rounds"}), frozenset({"n", "rounds"})),
        WarpBlock(end, (), frozenset({"rounds"}), nothing),
    ]
    wf = WarpFunction(made.library, "count", blocks, {"n": 32, "rounds": 32}, spins=False)
    return TranslatedProgram(made, wf.translate())


def test_a_kernel_is_optimised_after_it_ran_for_as_long_as_that_takes():
    short = program(Settings(cache=config().cache, shapes=WORDS), 64)
    long = TranslatedProgram(short.engine, replace(short.translation, text=1000 * short.translation.text))
    assert short.promote_after_s == 0.05
    assert long.promote_after_s == pytest.approx(2e-6 * 1000 * len(short.translation.text))


def test_warps_of_any_width_get_as_many_host_threads_for_as_many_lanes():
    narrow, wide = (
        program(Settings(cache=config().cache, shapes=WORDS, lanes=lanes), 64) for lanes in (32, 64)
    )
    for groups, several in ((15, False), (16, True)):
        work = LaunchWork(grid=(groups, 1, 1), block=(16, 16, 1), params=b"", shared_bytes=0)
        counts = {host_threads(one, work, LaunchOptions()) for one in (narrow, wide)}
        assert counts == {min(os.cpu_count() or 1, groups) if several else 1}


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("tier", ["quick", "optimised"])
def test_lanes_leave_a_loop_one_by_one(lanes: Any, tier: Any):
    out = np.zeros(100, "u4")
    memory = AddressSpace()
    memory.map(out.ctypes.data, out.nbytes)
    one = program(Settings(lanes=lanes, cache=config().cache, shapes=WORDS), out.ctypes.data)
    work = LaunchWork(grid=(1, 1, 1), block=(100, 1, 1), params=b"", shared_bytes=0)
    done = launch(one, work, memory, LaunchOptions(tier=tier))
    assert done.fault is None
    assert done.tier == tier
    assert out.tolist() == [10 * t + (t & 7) + 1 for t in range(100)]


@pytest.mark.slow
def test_code_is_cached_on_disk_and_recompiled_when_damaged(tmp_path: Any, monkeypatch: Any):
    settings, compiled = Settings(cache=tmp_path, shapes=WORDS), []
    program(settings, 0x1000).entry("quick")
    made = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(made) == 2
    compile_ir = jit.compile_ir
    monkeypatch.setattr(jit, "compile_ir", lambda *a, **k: compiled.append(a) or compile_ir(*a, **k))
    program(settings, 0x1000).entry("quick")
    assert not compiled
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == made.keys()
    damages: list[Callable[[bytes], bytes]] = [
        lambda raw: raw[:0],
        lambda raw: raw[:-1],
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
    ]
    for count, damage in enumerate(damages, 1):
        for path, raw in made.items():
            path.write_bytes(damage(raw))
        one = program(settings, 0x1000)
        assert not one.on_disk("quick")
        one.entry("quick")
        assert len(compiled) == count
        assert any(path.read_bytes() == raw for path, raw in made.items())


def test_disabled_sanitizers_emit_no_code():
    def names(checks: Sanitizers) -> set[str]:
        library = Library(32, jit.host(), checks)
        access.define_core(library)
        dispatch.run(library)
        return {name for name in library.helpers if "watch" in name}

    assert names(Sanitizers()) == set()
    assert names(Sanitizers.all()) == {"emu.watch.shared", "emu.watch.cluster", "emu.watch.global"}


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((0, 1, 1), (1, 1, 1)),
        ((1, 1, 1), (0, 1, 1)),
        ((1, 1, 1), (2048, 1, 1)),
        ((1 << 20, 1 << 16, 1), (1, 1, 1)),
    ],
)
def test_invalid_shapes_are_refused(grid: Any, block: Any):
    one = program(Settings(cache=config().cache, shapes=WORDS), 0x1000)
    with pytest.raises(UsageError, match="threads"):
        launch(one, LaunchWork(grid=grid, block=block, params=b"", shared_bytes=0), AddressSpace())


def test_threads_that_make_an_engine_at_once_share_one():
    settings = Settings(checks=Sanitizers(partial_barriers=True), cache=config().cache, shapes=WORDS)
    start = threading.Barrier(8)

    def want(_: int) -> Any:
        start.wait()
        return engine(settings)

    with ThreadPoolExecutor(8) as pool:
        made = set(map(id, pool.map(want, range(8))))
    assert len(made) == 1


def test_a_helper_written_by_another_thread_is_returned_complete():
    library = Library(32, jit.host(), Sanitizers())
    begun, wanted = threading.Event(), threading.Event()

    def slow(c: Any) -> None:
        begun.set()
        wanted.wait(10)
        time.sleep(0.05)
        c.ret()

    def want() -> str:
        begun.wait(10)
        wanted.set()
        return library.helpers[library.define("emu.slow", "void", {}, slow)].text

    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(want)
        library.define("emu.slow", "void", {}, slow)
        assert "@emu.slow" in other.result()


def test_slots_unused_by_a_smaller_launch_are_reset():
    memory = GroupMemory()
    memory.prepare(("wide",), 64, 4)
    memory.memory[:256] = bytes([1]) * 256
    memory.prepare(("narrow",), 32, 1)
    memory.prepare(("narrow",), 32, 3)
    heads = [bytes(memory.memory[at : at + 8]) for at in (0, 32, 64)]
    assert heads == [bytes(8)] * 3


def laid_out(memory: AddressSpace, *, threads: int = 1, groups: int = 1, **options: Any) -> RunningLaunch:
    """Return a launch in warps of 32 lanes that is laid out and not run: nothing is compiled."""
    one: Any = SimpleNamespace(
        engine=SimpleNamespace(settings=Settings(checks=Sanitizers())),
        translation=SimpleNamespace(state_bytes=0, sites=(), counted=None),
        plans={},
        keep_plan=lambda *_: None,
    )
    work = LaunchWork(grid=(groups, 1, 1), block=(threads, 1, 1), params=b"", shared_bytes=0)
    return prepare(one, work, memory, LaunchOptions(**options), 0, 1)


def test_a_launch_that_is_over_does_not_stop_the_next_one():
    before = laid_out(AddressSpace())
    before.return_memories()
    after = laid_out(AddressSpace())
    before.stop()
    before.return_memories()
    assert LAUNCH.read(after.launch, "stop") == 0
    other = laid_out(AddressSpace())
    assert ctypes.addressof(other.launch) != ctypes.addressof(after.launch)


def test_reports_of_a_launch_are_not_those_of_the_next_one():
    before = laid_out(AddressSpace())
    struct.pack_into("<I", before.reports, 0, 7)
    before.stop()
    before.return_memories()
    after = laid_out(AddressSpace())
    assert struct.unpack_from("<I", after.reports) == (0,)
    assert LAUNCH.read(after.launch, "stop") == 0


def test_every_order_of_warps_is_made_by_some_seed():
    def order(seed: int) -> tuple[int, ...]:
        running = laid_out(AddressSpace(), threads=128, warp_order=seed)
        at = THREAD.read(running.threads[0], "warp_order")
        running.return_memories()
        return tuple((ctypes.c_uint32 * 4).from_address(at))

    seen = {order(seed) for seed in range(500)}
    assert len(seen) == 24
    assert {tuple(sorted(one)) for one in seen} == {tuple(sorted(order(1)))}


@pytest.mark.parametrize("groups", [2, 12, 97])
def test_every_workgroup_is_the_first_for_some_seed_and_each_runs_once(groups: int):
    firsts = set()
    for seed in range(1, 40 * groups):
        running = laid_out(AddressSpace(), groups=groups, group_seed=seed)
        step, first = (THREAD.read(running.threads[0], name) for name in ("group_step", "group_first"))
        running.return_memories()
        assert len({(first + i * step) % groups for i in range(groups)}) == groups
        firsts.add(first)
    assert len(firsts) == groups


def test_a_launch_in_flight_keeps_the_shadows_of_memory_that_is_freed_meanwhile():
    memory = AddressSpace()
    memory.map(0x1000, 0x100)
    one: Any = SimpleNamespace(
        engine=SimpleNamespace(settings=Settings(checks=Sanitizers.all())),
        translation=SimpleNamespace(state_bytes=0, sites=(), counted=None),
        plans={},
        keep_plan=lambda *_: None,
    )  # nothing is compiled: the launch is laid out and not run
    work = LaunchWork(grid=(1, 1, 1), block=(1, 1, 1), params=b"", shared_bytes=0)
    running = prepare(one, work, memory, LaunchOptions(), 0, 1)
    before = weakref.ref(memory.mappings()[0].touched)
    memory.map(0x2000, 0x100)
    running.refresh_map(memory, shadows=True)
    after = weakref.ref(memory.mappings()[1].touched)
    for va in (0x1000, 0x2000, *[0x3000] * 1000):  # more than are remembered
        if va == 0x3000:
            memory.map(va, 0x100)
        memory.unmap(va)
    assert before() is not None
    assert after() is not None
    running.return_memories()
    del running
    assert (before(), after()) == (None, None)
