"""Streams, rings and doorbells: golden decoded text, words of working drivers, the cost of a launch."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from drivers.kernel import view_at
from drivers.nv import decode, push
from drivers.nv.layouts.qmd import QMDS, sass_version, sm_config
from drivers.nv.layouts.rm_classes import OsDescriptorFlags, copy_engine
from drivers.nv.quirks import parse
from drivers.nv.ring import PUSH_BYTES
from drivers.nv.slm import sizes
from hcq.config import override
from hcq.device import Device
from hcq.driver import BufferSpec, Place, QueueKind
from hcq.errors import DeviceFault, UsageError
from hcq.graph import Graph
from hcq.params import Param
from tests.limits import CHILD_S, HANG_S
from tests.support.host_time.nv import FinishedNv
from tests.support.nv.golden import GOLDEN, sample
from tests.support.nv.recorded import RecordedKernel, driver_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


SMALL = 1 << 14
"""Bytes of a small ring."""
FOLDER = Path(__file__).parents[2] / "golden"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All streams, from a separate process, because addresses depend on the process's earlier allocations."""
    folder = tmp_path_factory.mktemp("golden")
    command = [sys.executable, "-m", "tests.support.nv.golden", str(folder)]
    subprocess.run(command, check=True, timeout=CHILD_S)
    return folder


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_decoded_stream_is_the_golden_one(name: str, written: Path):
    """`python -m tests.support.nv.golden tests/golden` rewrites the files.

    Review the difference before committing.
    """
    assert (written / f"{name}.txt").read_text() == (FOLDER / f"{name}.txt").read_text()


@contextlib.contextmanager
def device(chip: str = "sm_90"):
    kernel = RecordedKernel(chip)
    made = Device(driver_of(kernel).open(0, None))
    try:
        yield kernel, made
    finally:
        made.close()
    assert kernel.held() == {}


def test_open_grid_and_pointer_land_in_descriptor_and_bank():
    with device() as (kernel, made):
        program = made.load(sample("sm_90a", 90))
        out, x = made.alloc(4096), made.alloc(4096)
        graph = Graph()
        size, source = graph.param("groups", bits=31), graph.param("x")
        commands = made.compute.record().exec(
            program, program.args(out, source, 3), groups=(size, 5, 1), threads=(64, 1, 1)
        )
        graph.add(made.compute, commands)
        executable = graph.compile()
        for groups in (77, 5):
            kernel.doorbells.streams.clear()
            executable.submit({size: groups, source: x}).wait(timeout_s=HANG_S)
            line = next(one for lines in kernel.doorbells.streams for one in lines if "SEND_PCAS_A" in one)
            layout = QMDS["V04"]
            descriptor = layout.from_bytes(view_at(int(line.rsplit("=", 1)[1], 16), layout.SIZE))
            assert (groups, 5) == (descriptor.GRID_WIDTH, descriptor.GRID_HEIGHT)
            bank = view_at(descriptor.CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6[0] << 6, 0x220)
            assert list(bank[0x0C:0x18].cast("I")) == [groups, 5, 1]
            assert list(bank[0x15C:0x168].cast("I")) == [groups, 5, 1], "as clusters of one"
            assert list(bank[0x210:0x220].cast("Q")) == [out.va, x.va]
            assert descriptor.check() == []


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["compute", "copy"])
@pytest.mark.parametrize("bits", [32, 64])
def test_an_open_write_to_an_open_place_stores_the_whole_number(kind: str, bits: int):
    with device() as (_, made):
        where, what = Param("where", size=16), Param("what", bits)
        queue = made.compute if kind == "compute" else made.copies[0]
        commands = queue.record().write(where + 8, what, bits=bits)
        buffer = made.alloc(64, BufferSpec(place=Place.HOST, host_visible=True, coherent=True))
        number = 0x1234_5678_9ABC_DEF0 >> 64 - bits
        queue.submit(commands, values={where: buffer, what: number}).wait(timeout_s=HANG_S)
        assert int.from_bytes(buffer.host()[8 : 8 + bits // 8], "little") == number
        with pytest.raises(UsageError, match="does not fit"):
            queue.submit(queue.record().write(buffer, 1 << bits, bits=bits))


@pytest.mark.slow
def test_descriptors_of_every_version_describe_a_kernel_alike():
    seen = {}
    for sm, arch in ((80, "sm_80"), (90, "sm_90a"), (120, "sm_120a")):
        with device(f"sm_{sm}") as (_, made):
            program = made.driver.load(sample(arch, sm, registers=40, stack=100))
            shape = program.shape((3, 4, 5), (32, 2, 1))
            layout = program.descriptor.layout
            value = layout.from_bytes(shape.block.tobytes()[: layout.SIZE])
            assert value.check() == []
            dialect = program.descriptor.dialect
            shared = getattr(value, dialect.shared) << dialect.shared_shift
            suffix = "_SHIFTED4" if dialect.local_shift else ""
            local = getattr(value, f"SHADER_LOCAL_MEMORY_HIGH_SIZE{suffix}") << dialect.local_shift
            where = getattr(value, dialect.program[0]) | getattr(value, dialect.program[1]) << 32
            assert where << dialect.program_shift == program.memory.va + program.kernel.code
            seen[arch] = (
                [getattr(value, name) for name in dialect.grid],
                [value.CTA_THREAD_DIMENSION0, value.CTA_THREAD_DIMENSION1, value.CTA_THREAD_DIMENSION2],
                getattr(value, dialect.registers),
                shared,
                local,
                value.QMD_MAJOR_VERSION,
            )
            made.driver.unload(program)
    assert seen["sm_80"][:5] == seen["sm_90a"][:5] == seen["sm_120a"][:5]
    assert seen["sm_90a"][:5] == ([3, 4, 5], [32, 2, 1], 40, 0x400, 0x2B0)
    assert [s[5] for s in seen.values()] == [3, 4, 5]


def test_a_ring_wraps_and_keeps_what_was_not_fetched():
    with override(ring_bytes=SMALL), device() as (kernel, made):
        ring = made.driver.ring(QueueKind.COPY, 0)
        seen: list[int] = []
        kernel.doorbells.watch = lambda _, entries: seen.extend(map(len, entries))
        filler = (push.header(push.COPY, 0x100, 1), 0) * (SMALL // 4 // 6)
        for _ in range(7):
            ring.send(filler)
        assert seen == [len(filler) + push.SEM_WORDS] * 7
        kernel.settle()
        assert ring.reclaim() == ring.sequence


def test_a_stream_larger_than_the_ring_is_refused():
    with device() as (_, made), pytest.raises(UsageError, match="larger than the ring"):
        made.driver.ring(QueueKind.COPY, 0).send((0,) * (PUSH_BYTES // 4))


def test_a_ring_without_a_free_entry_waits_until_the_device_faults():
    with override(ring_bytes=SMALL), device() as (kernel, made):
        ring = made.driver.ring(QueueKind.COPY, 0)
        kernel.settle()
        kernel.doorbells.stalled = True
        setup = ring.sequence
        for _ in range(ring.submissions):
            ring.send(())
        assert ring.sequence == setup + ring.submissions
        kernel.post_error(32)
        with pytest.raises(DeviceFault, match="host error"):
            ring.send(())


def test_entries_that_were_fetched_are_written_again():
    with override(ring_bytes=SMALL), device() as (kernel, made):
        ring = made.driver.ring(QueueKind.COPY, 0)
        kernel.settle()
        kernel.doorbells.stalled = True
        progress = view_at(ring.memory.va, 8).cast("Q")
        for _ in range(3):
            for _ in range(ring.submissions // 2):
                ring.send(())
            progress[0] = ring.sequence
        assert ring.sequence > ring.submissions
        assert ring.reclaim() == ring.sequence


def test_a_full_ring_waits_until_the_device_faults():
    with override(ring_bytes=SMALL), device() as (kernel, made):
        ring = made.driver.ring(QueueKind.COPY, 0)
        kernel.settle()
        kernel.doorbells.stalled = True
        filler = (push.header(push.COPY, 0x100, 1), 0) * (SMALL // 4 // 6)
        ring.send(filler)
        ring.send(filler)
        assert "fetched" in ring.stuck()
        kernel.post_error(32)
        with pytest.raises(DeviceFault, match="host error"):
            ring.send(filler)
        kernel.doorbells.stalled = False


def test_unknown_methods_and_headers_are_not_decoded():
    with pytest.raises(ValueError, match="not a method header"):
        list(decode.methods([0]))
    with pytest.raises(ValueError, match="no method"):
        list(decode.methods([push.header(push.COPY, 0x104, 1), 0]))


def test_host_semaphores_before_hopper_carry_8_upper_bits():
    with device("sm_80") as (kernel, made):
        kernel.doorbells.streams.clear()
        made.compute.submit(made.compute.record().barrier()).wait(timeout_s=HANG_S)
        upper = [
            line for submission in kernel.doorbells.streams for line in submission if "SEM_ADDR_HI" in line
        ]
        assert upper
        assert all(int(line.rsplit("=", 1)[1], 0) < 256 for line in upper)


def instructions_of(
    run: Callable[[], None], before: Callable[[], None], *, without: tuple[str, ...] = ()
) -> int:
    """Count the bytecode instructions of a warm call, which are the same on every host.

    Functions in files whose path ends with one of `without` are left out.
    """
    count = 0

    def watch(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename.endswith(without):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return watch

    for _ in range(10):
        before()
        run()
    gc.collect()
    gc.disable()  # what other tests left is not finalized inside
    traced = sys.gettrace()
    try:
        for _ in range(2):  # Python 3.12 tells none the first time
            before()
            count = 0
            sys.settrace(watch)
            run()
            sys.settrace(traced)
    finally:
        sys.settrace(traced)
        gc.enable()
    assert count
    return count


# `python -m tests.support.host_time` says what these cost in time. Python 3.11 runs two thirds of these
# instructions.


def test_a_launch_costs_little_python():
    with FinishedNv() as gpu:
        assert instructions_of(gpu.launcher(), gpu.finish) <= 1700


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("changed", "most"), [(True, 10_000), (False, 1000)])
def test_a_replay_of_256_kernels_costs_little_python(*, changed: bool, most: int):
    with FinishedNv() as gpu:
        assert instructions_of(gpu.replayer(changed=changed), gpu.finish) <= most


def pages(kernel: RecordedKernel) -> list[str]:
    """Return the parameters with which each usermode object was allocated."""
    lines = [line for line in kernel.lines if line.startswith("RM_ALLOC ") and "_USERMODE_A " in line]
    return [line.split(" ", 4)[4] if line.count(" ") > 3 else "" for line in lines]


def opened(kernel: RecordedKernel, choices: str = "default"):
    return contextlib.closing(driver_of(kernel).open(0, None, choices=parse(choices)))


@pytest.mark.parametrize("chip", ["sm_90", "sm_120"])
def test_the_clock_is_read_from_a_page_of_its_own(chip: str):
    kernel = RecordedKernel(chip)
    with opened(kernel) as device:
        assert device.clock().ticks > 0
        assert pages(kernel) == ["bBar1Mapping=1", "0"]
    assert kernel.held() == {}


def test_one_page_serves_both_where_doorbells_go_through_bar0():
    kernel = RecordedKernel()
    with opened(kernel, "doorbell_bar1=false") as device:
        assert device.clock().ticks > 0
        assert pages(kernel) == ["0"]


def test_classes_before_hopper_take_no_parameters_and_have_one_page():
    kernel = RecordedKernel("sm_80")
    with opened(kernel) as device:
        assert device.clock().ticks > 0
        assert pages(kernel) == [""]


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (push.ACQUIRE, 0x0100_1003),
        (push.RELEASE_WFI_TIME, 0x0310_0001),
        (push.RELEASE_WFI, 0x0110_0001),
        (push.LAUNCH_COPY, 0x182),
        (push.LAUNCH_TIME, 0x14),
        (push.LAUNCH_FILL, 0x586),
        (push.FILL_COMPONENTS, 0x3_0004),
    ],
)
def test_words_of_working_drivers(seen: int, word: int):
    assert seen == word


def test_long_copies_are_cut_at_2_gib():
    words = push.copy(0x10_0000_0000, 0x20_0000_0000, (1 << 31) + 100)
    assert len(words) == 18
    assert words[9:15] == (words[0], 0x20, 0x8000_0000, 0x10, 0x8000_0000, words[5])
    assert (words[6], words[15]) == (1 << 31, 100)


def test_engine_types_of_copy_engines():
    assert [copy_engine(i) for i in (0, 1, 9, 10, 11)] == [0x9, 0xA, 0x12, 0x34, 0x35]


def test_codes_of_carve_outs_and_sass():
    assert (sm_config(228), sm_config(100)) == (0x3A, 0x1A)
    assert [sass_version(v) for v in (0x900, 0x806, 0xA00, 0xC00)] == [0x90, 0x86, 0xA0, 0xC0]


def test_flags_of_user_pages():
    assert int(OsDescriptorFlags(PHYSICALITY=1, COHERENCY=1, MAPPING=1)) == 0x4000_1010


class Litter:
    max_warps, sms_per_tpc, litter_tpcs = 64, 2, 72


def test_local_memory_is_sized_by_warps_tpcs_and_litter():
    per_tpc, total = sizes(Litter(), 0x2C0)
    warp = -(-0x2C0 * 32 // 0x200) * 0x200
    assert per_tpc == -(-warp * 64 * 2 // 0x8000) * 0x8000
    assert total == -(-per_tpc * 72 // 0x20000) * 0x20000
