"""NVIDIA's ladder: its rungs in the order of execution, and the vendor's interface to the shared part.

Not here: how the rungs are run (`tools.bringup.ladder`). Next: `rungs` and `rungs_compute`, the tests.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from drivers.kernel import LinuxKernel
from drivers.nv.quirks import ALTERNATIVES, PRESETS, NvQuirks, fitting, parse
from drivers.shared.choices import changes, describe
from emulator.nv.machine import check_variant
from tools.bringup import launches
from tools.bringup.emulated import split
from tools.bringup.nv import rungs as low
from tools.bringup.nv import rungs_compute as high
from tools.bringup.nv.bench import Bench
from tools.bringup.nv.evidence import line, memory
from tools.bringup.nv.rejections import REJECTIONS
from tools.bringup.rung import Rung
from tools.bringup.vendor import Vendor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from drivers.kernel import Kernel

_SHOWN = {"vaspace": "sm_90+native", "group_id": "sm_120", "dependent_launch": "sm_80"}
"""Uncertain value -> the emulated GPU whose refusal of the default the ladder sees; sm_90 for the others."""
_LOAD_S = 30.0
"""Time limit, in seconds, of rungs that may load the assembler from a cold disk. Their waits have shorter
limits."""
_VIDEO = ("pitch_kind", "persistent_vidmem", "huge_pages", "small_pages")
_CHANNEL = ("channel_class", "object_buffer", "notifier", "ring", "vaspace")
_COPY_CHANNEL = ("register_copy_channels", "copy_engine", "small_pages", *_CHANNEL)
_HOST_RELEASE = (
    "doorbell_bar1", "doorbell_class", "push_in_vram", "host_memory", "gp_level", "copy_engine", *_CHANNEL,
)  # fmt: skip
_COMPUTE_CHANNEL = (
    "subcontext", "context_share", "graphics_copy", "gr_parameters", "context_window", *_CHANNEL,
)  # fmt: skip
_LAUNCH = (
    "full_descriptor", "carveout", "qmd_type", "group_id", "sampler_via_header", "pcas", "qmd_version_method",
    "context_share", "subcontext", "arguments_in_vram", "graphics_copy", "windows", "host_memory", "vaspace",
)  # fmt: skip
_LAUNCHES = ("full_descriptor", "pcas", "arguments_in_vram")
_CLUSTERS = ("cluster_type", "cluster_size", "cluster_spread")
_CHAINED = ("dependent_launch", *_LAUNCHES)
EXPECTED: Final[Mapping[str, str]] = {
    "qmd_type=0": "0 is a queue in the header, not a grid; no public launch on Hopper is known",
    "cluster_type=2": "a descriptor of type GRID_CTA has no clusters by its name",
    "full_descriptor=false": "no cache is invalidated: a launch may read stale data",
    "vaspace=rm": "sandboxes filter NV_ESC_RM_MAP_MEMORY_DMA and the class 0x70",
    "doorbell_class=c561": "sandboxes do not list the class",
    "doorbell_class=c361": "sandboxes do not list the class",
    "context_window=64": "the context buffers of an H100 are estimated at 100 to 110 MiB",
    "windows=high": "no public driver places both windows above all memory on this GPU",
}
"""Text of a value ("name=value") -> why it may fail on a GPU where the default works. The report marks such a
failure as expected."""
RUNGS: tuple[Rung, ...] = (
    Rung(0, "environment", low.environment),
    Rung(1, "nodes open", low.nodes, limit_s=30),
    Rung(2, "driver version", low.version),
    Rung(3, "client and cards", low.client, needs=(2,)),
    Rung(4, "device and subdevice", low.objects, needs=(3,), limit_s=30),
    Rung(5, "classes and units", low.classes, ("plausible",), (4,)),
    Rung(6, "doorbell page", low.doorbell, ("doorbell_bar1", "doorbell_class", "doorbell_owner"), (5,)),
    Rung(7, "video memory", low.video_memory, _VIDEO, (5,)),
    Rung(8, "system memory", low.system_memory, ("system_cached",), (5,)),
    Rung(9, "address space", low.unified_memory, ("vaspace", "vaspace_faulting"), (5,)),
    Rung(10, "mappings", low.mapping, ("small_pages", "huge_pages", "vaspace"), (9,)),
    Rung(11, "copy channel", low.copy_channel, _COPY_CHANNEL, (9,)),
    Rung(12, "host release", low.host_release, _HOST_RELEASE, (11,)),
    Rung(13, "64-bit release with a timestamp", low.host_release_time, ("channel_class",), (11,)),
    Rung(14, "copy engine release", low.engine_release, ("copy_engine", "host_memory"), (11,)),
    Rung(15, "copies and bandwidth", low.copies, ("copy_engine", "huge_pages", "host_memory"), (14,), 30),
    Rung(16, "compute channel", low.compute_channel, _COMPUTE_CHANNEL, (9,)),
    Rung(17, "report semaphore", low.report_semaphore, ("graphics_copy", "subcontext", "windows"), (16,)),
    Rung(18, "a kernel stores a token", launches.store, _LAUNCH, (14, 16), _LOAD_S),
    Rung(19, "grid, parameters, constants", high.grid, _LAUNCHES, (18,), _LOAD_S),
    Rung(20, "shared memory", high.shared, ("carveout", "windows"), (18,), _LOAD_S),
    Rung(21, "local memory", launches.local, ("stack", "all_sms", "windows"), (18,), _LOAD_S),
    Rung(22, "copies and kernels in turn", high.exchange, ("copy_engine", *_CHAINED), (18,), _LOAD_S),
    Rung(26, "clusters of workgroups", high.clusters, _CLUSTERS, (18,), _LOAD_S),
    Rung(27, "workgroups that wait for each other", high.meeting, needs=(18,), limit_s=_LOAD_S),
    Rung(28, "rings that wrap", high.wraps, ("gp_level", "push_in_vram"), (18,), _LOAD_S),
    Rung(29, "memory of another GPU", launches.peers, needs=(18,), limit_s=_LOAD_S),
    Rung(24, "bandwidth, two processes", high.clocks, needs=(18,), limit_s=60),
    Rung(23, "a deliberate fault", high.fault, needs=(18,), limit_s=_LOAD_S),
    Rung(25, "a new process after the fault", launches.fresh_after_fault, needs=(18,), limit_s=_LOAD_S),
)
"""The rungs in the order of execution. After the fault comes only the test that a new process works."""


def _make_kernel(*, emulate: str | None) -> Kernel:
    """Return Linux for None, else an emulated GPU of that variant."""
    if emulate is not None:
        # An emulated GPU computes, so results are checked as on a real one.
        from emulator.nv.machine import open_variant  # noqa: PLC0415 - only for emulated runs

        return open_variant(*split(emulate, REJECTIONS))
    return LinuxKernel()


def _presets(facts: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the presets that fit the compute class that a rung reported, or all without such a report."""
    compute_class = facts.get("compute class")
    for name in fitting(int(compute_class, 16) if compute_class else None):
        yield name, dict(PRESETS[name].values)


def _prepare(folder: Path) -> list[Path]:
    from tools.bringup.nv.kernels import prepare  # noqa: PLC0415 - needs the assembler

    return prepare(folder)


NV: Vendor[NvQuirks] = Vendor(
    name="nv",
    rungs=RUNGS,
    alternatives=ALTERNATIVES,
    expected=EXPECTED,
    parse=parse,
    describe=describe,
    changes=changes,
    presets=_presets,
    held=lambda index: ("/dev/nvidiactl", low.gpu_node(index)),
    log_words=("nvrm", "nvidia"),
    check_variant=lambda variant: check_variant(split(variant, REJECTIONS)[0]),
    quirks={name: _SHOWN.get(name, "sm_90") for name in REJECTIONS},
    make_kernel=_make_kernel,
    bench=lambda kernel, choices, options: Bench(kernel, choices, **asdict(options)),
    line=line,
    memory=memory,
    prepare=_prepare,
)
