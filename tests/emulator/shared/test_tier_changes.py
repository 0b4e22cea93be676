"""A running kernel goes on in the code of another tier, which the host thread's record names.

Not here: when the tier changes (`emulator.simt.launch`).
"""

from __future__ import annotations

import threading

from emulator.nv.ptx.module import load_ptx, work_of
from emulator.simt.engine import OPTIMISED, QUICK
from emulator.simt.running import address_of, prepare
from emulator.simt.work import LaunchOptions
from tests.emulator.nv.conftest import Bench

POLLS = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 flag) {
.reg .u64 %p; .reg .u32 %v; .reg .pred %no; ld.param.u64 %p, [flag];
L: ld.volatile.global.u32 %v, [%p]; setp.eq.u32 %no, %v, 0; @%no bra L; ret; }
"""
CHANGES = 200_000


def test_the_code_changes_by_one_store() -> None:
    """A host thread that reads the field between two stores would jump to address 0."""
    bench = Bench()
    flag = bench.new([0], "u4")
    module = load_ptx(POLLS, arch="sm_90", settings=bench.settings)
    kernel = module.kernel("k", module.place(bench.memory))
    program = kernel.program
    work = work_of(kernel, (3, 1, 1), (64, 1, 1), flag.ctypes.data.to_bytes(8, "little"), 0)
    tiers = program.entry(QUICK), program.entry(OPTIMISED)
    running = prepare(program, work, bench.memory, LaunchOptions(), tiers[0], 1)
    thread = threading.Thread(target=program.engine.run, args=(address_of(running.threads[0]),))
    thread.start()
    try:
        for i in range(CHANGES):
            running.use(tiers[i % 2])
    finally:
        flag[0] = 1
        thread.join()
    running.return_memories()
