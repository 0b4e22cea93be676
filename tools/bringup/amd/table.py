"""AMD's ladder: its rungs in the order of execution, and the vendor's interface to the shared part.

Not here: how the rungs are run (`tools.bringup.ladder`). Next: `rungs`, `rungs_queues`, `rungs_compute` and
`rungs_order`, the tests.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from drivers.amd.quirks import ALTERNATIVES, AmdQuirks, parse
from drivers.kernel import LinuxKernel
from drivers.shared.choices import changes, describe
from tools.bringup import launches
from tools.bringup.amd import rungs as low
from tools.bringup.amd import rungs_compute as high
from tools.bringup.amd import rungs_order as order
from tools.bringup.amd import rungs_queues as middle
from tools.bringup.amd.bench import Bench
from tools.bringup.amd.evidence import line, memory
from tools.bringup.amd.rejections import REJECTIONS
from tools.bringup.emulated import split
from tools.bringup.rung import Rung
from tools.bringup.vendor import Vendor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivers.kernel import Kernel

_SHOWN = {
    "release_caches": "gfx942-cpx",
    "single_xcc": "gfx942-cpx",
    "cwsr_sizes": "gfx1100+6.12.107",
    **dict.fromkeys(("aql_eop", "aql_scratch"), "gfx942"),
    **dict.fromkeys(("order", "coher_size"), "gfx1100+checked"),
}
"""Uncertain value -> the emulated GPU whose refusal of the default the ladder sees; else it is a gfx1100."""
_LOAD_S = 30.0
"""Time limit, in seconds, of rungs that may compile kernels after a cold start. Their waits have shorter
limits."""
_RELEASE = (
    "release_event", "release_policy", "release_caches", "release_confirm", "signal_bits", "ace_offload",
)  # fmt: skip
_LAUNCH = ("priv", "trap_present", "order_mode", "force_start", "acquire", "coher_size", *_RELEASE)
_QUEUE = ("single_xcc", "aql_eop", "ring_bytes", "cwsr_sizes")
_SUBMISSION = ("order", "acquire", "aql_overlap", "coher_size")
EXPECTED: Final[Mapping[str, str]] = {
    "acquire=order": "a kernel may read stale cache lines of what an earlier kernel of the queue stored",
    "copy_stamp=direct": "timestamps are aligned to 8 bytes by the header, to 32 by the checks of runtimes",
    "fence_mtype=false": "the store may stay in a cache unless the page is uncached",
    "priv=never": "context save of gfx1100 to gfx1103 needs it; only a preempted wave fails without it",
}
"""Text of a value ("name=value") -> why it may fail on a GPU where the default works. The report marks such a
failure as expected."""
RUNGS: tuple[Rung, ...] = (
    Rung(0, "environment", low.environment),
    Rung(1, "/dev/kfd opens", low.nodes, limit_s=30),
    Rung(2, "interface version", low.version, needs=(1,)),
    Rung(3, "topology and target", low.topology),
    Rung(4, "render node", low.render_node, needs=(2, 3)),
    Rung(5, "address space", low.address_space, needs=(4,), limit_s=30),
    Rung(6, "exceptions of queues", low.runtime, ("runtime",), (5,)),
    Rung(7, "clock", low.clock, needs=(5,)),
    Rung(8, "video memory", low.video_memory, needs=(5,)),
    Rung(9, "system memory", low.system_memory, ("system_uncached",), (5,)),
    Rung(10, "memory of this process", low.user_pointer, needs=(5,)),
    Rung(11, "events", low.events, needs=(9,)),
    Rung(12, "copy queue", middle.copy_queue, ("ring_bytes",), (8, 9, 11)),
    Rung(13, "fence and poll", middle.copy_fence, ("fence_mtype",), (12,)),
    Rung(14, "time and interrupt of a copy", middle.copy_interrupt, ("fence_mtype",), (13,)),
    Rung(16, "compute queue", middle.compute_queue, _QUEUE, (8, 9, 11)),
    Rung(17, "release, time, wait, interrupt", middle.compute_signal, ("single_xcc", *_RELEASE), (16,)),
    Rung(
        15, "copies and bandwidth", middle.copies, ("copy_pieces", "copy_order", "copy_stamp"), (10, 13), 30
    ),
    Rung(18, "a kernel stores a token", launches.store, (*_LAUNCH, "single_xcc"), (15, 17), _LOAD_S),
    Rung(19, "grid, arguments, constants", high.grid, ("priv", "acquire"), (18,), _LOAD_S),
    Rung(20, "LDS and a barrier", high.shared, needs=(18,), limit_s=_LOAD_S),
    Rung(21, "scratch", launches.local, ("aql_scratch",), (18,), _LOAD_S),
    Rung(22, "copies and kernels in turn", high.exchange, (*_LAUNCH, "order", "copy_order"), (18,), _LOAD_S),
    Rung(26, "kernels of one submission", order.kernels, _SUBMISSION, (18,), _LOAD_S),
    Rung(27, "video memory that the host writes", order.host_stores, ("hdp",), (15,), 30),
    Rung(28, "rings that wrap", order.wraps, needs=(18,), limit_s=_LOAD_S),
    Rung(29, "memory of another GPU", launches.peers, needs=(18,), limit_s=_LOAD_S),
    Rung(24, "bandwidth, two processes", high.two_processes, needs=(18,), limit_s=60),
    Rung(23, "a deliberate fault", high.fault, needs=(18,), limit_s=_LOAD_S),
    Rung(25, "a new process after the fault", launches.fresh_after_fault, needs=(18,), limit_s=_LOAD_S),
)
"""The rungs in the order of execution. Rung 15 uses the complete driver, so 16 and 17, which test its compute
queue alone, come before it. After the fault comes only the test that a new process works."""


def _make_kernel(*, emulate: str | None) -> Kernel:
    """Return Linux for None, else an emulated GPU of that variant."""
    if emulate is not None:
        from emulator.devices import AMD_MACHINES  # noqa: PLC0415 - only for emulated runs

        return AMD_MACHINES(*split(emulate, REJECTIONS))
    return LinuxKernel()


def _check_variant(variant: str) -> None:
    """Raise `UsageError` for an unknown emulated GPU."""
    from emulator.devices import AMD_MACHINES  # noqa: PLC0415 - only for emulated runs

    AMD_MACHINES(*split(variant, REJECTIONS))


def _no_presets(_facts: Mapping[str, Any]) -> tuple[tuple[str, Mapping[str, object]], ...]:
    """Return no presets: no two public drivers differ in a set of values."""
    return ()


def _prepare(folder: Path) -> list[Path]:
    from tools.bringup.amd.kernels import prepare  # noqa: PLC0415 - needs the compiler

    return prepare(folder)


AMD: Vendor[AmdQuirks] = Vendor(
    name="amd",
    rungs=RUNGS,
    alternatives=ALTERNATIVES,
    expected=EXPECTED,
    parse=parse,
    describe=describe,
    changes=changes,
    presets=_no_presets,
    # amdgpu keeps the state of an idle GPU, so no node must stay open.
    held=lambda _: (),
    log_words=("amdgpu", "kfd"),
    check_variant=_check_variant,
    make_kernel=_make_kernel,
    quirks={name: _SHOWN.get(name, "gfx1100") for name in REJECTIONS if name in ALTERNATIVES},
    bench=lambda kernel, choices, options: Bench(kernel, choices, **asdict(options)),
    line=line,
    memory=memory,
    prepare=_prepare,
)
