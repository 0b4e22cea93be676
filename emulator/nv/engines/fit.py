"""The check that a launch provides the resources which the kernel's image declares.

The machine code itself never runs, so its requirements are checked here: registers, barriers, stack, shared
memory, and constant bank 0 at the offsets that the machine code reads. Source: docs/facts/nv.md 2.8, 4.2, 5.

A launch that lacks something raises `ChannelError`.

Not here: the descriptor by itself (`descriptor`), the contents of the other banks (`images`). Next: `grid`,
which calls `judge`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drivers.nv.layouts import compute as layout
from drivers.nv.layouts.cubin import RESERVED_SHARED, STACK_POINTER_TOP
from drivers.nv.layouts.qmd import MAX_REGISTERS
from emulator.nv.profiles import MAX_WARPS_PER_SM, SMS_PER_TPC
from emulator.nv.reports import launch_error
from emulator.shared.vaspace import AccessKind

if TYPE_CHECKING:
    from emulator.nv.engines.compute import Windows
    from emulator.nv.engines.descriptor import LaunchDescriptor
    from emulator.nv.engines.engine import EngineChannel
    from emulator.nv.engines.images import LoadedImage


def judge(
    run: EngineChannel, windows: Windows, one: LaunchDescriptor, loaded: LoadedImage, bank0: bytes
) -> int:
    """Check a launch; return its dynamic shared memory in bytes. Raises a launch error or a page fault.

    `bank0` are the contents of constant bank 0.
    """
    _check_prefetch(run, one)
    _check_needs(one, loaded)
    windows.check(run.space, run.gpu.profile.wide)
    dynamic = _check_bank0(run, windows, one, loaded, bank0)
    if any(one.local) or loaded.kernel.stack:
        _check_local(run, windows, one, loaded)
    return dynamic


def bank_bytes(run: EngineChannel, loaded: LoadedImage, index: int) -> int:
    """Return how many bytes of a constant bank a kernel may read; 0 if its image has no such bank."""
    kernel = loaded.kernel
    if index == 0:
        return max(run.gpu.profile.chip.bank0.SIZE + kernel.param_bytes, kernel.constant0)
    return kernel.banks[index].size if index in kernel.banks else 0


def _check_prefetch(run: EngineChannel, one: LaunchDescriptor) -> None:
    """Raise `ChannelError` unless the code to prefetch belongs to the program and is mapped."""
    at, size = one.prefetch
    if not size:
        return
    if not at <= one.program < at + size:
        raise launch_error(
            f"the code prefetched, [{at:#x}, +{size:#x}), is not the program at {one.program:#x}"
        )
    run.space.check_range(at, size, AccessKind.PREFETCH, "the prefetch of code")


def _check_needs(one: LaunchDescriptor, loaded: LoadedImage) -> None:
    """Raise `ChannelError` if the descriptor contradicts the image's info records."""
    kernel = loaded.kernel
    if not kernel.registers <= one.registers <= MAX_REGISTERS:
        raise launch_error(
            f"{kernel.name} needs {kernel.registers} registers, the descriptor gives {one.registers}"
        )
    if one.barriers < kernel.barriers:
        raise launch_error(
            f"{kernel.name} needs {kernel.barriers} barriers, the descriptor gives {one.barriers}"
        )
    if one.shared < kernel.static_shared:
        raise launch_error(
            f"{kernel.name} needs {kernel.static_shared:#x} bytes shared, the descriptor gives "
            f"{one.shared:#x}"
        )
    if max(one.local) < kernel.stack:
        raise launch_error(
            f"{kernel.name} needs {kernel.stack:#x} bytes of stack, the descriptor gives {one.local}"
        )
    per_warp = -(-one.registers * 32 // 256) * 256
    most = 65536 // per_warp // 4 * 4 * 32
    if one.threads > most:
        raise launch_error(
            f"a block of {one.threads} threads with {one.registers} registers each: {most} fit an SM"
        )


def _check_bank0(
    run: EngineChannel, windows: Windows, one: LaunchDescriptor, loaded: LoadedImage, content: bytes
) -> int:
    """Return the dynamic shared memory in bytes, after a check of the driver's words of bank 0."""
    kernel, shape = loaded.kernel, run.gpu.profile.chip.bank0
    if kernel.param_base and kernel.param_base != shape.SIZE:
        raise launch_error(
            f"the parameters of {kernel.name} start at {kernel.param_base:#x}, facts: {shape.SIZE:#x}"
        )
    if len(content) < bank_bytes(run, loaded, 0):
        raise launch_error(
            f"constant bank 0 has {len(content):#x} bytes, {kernel.name} reads "
            f"{bank_bytes(run, loaded, 0):#x}"
        )
    words: Any = shape.from_bytes(content)  # the three layouts have these fields in common
    if words.check():
        raise launch_error(f"constant bank 0 of {kernel.name}: {words.check()[0]}")
    for name, wanted in (("ntid", one.block), ("nctaid", one.grid)):
        _check_shape(run, loaded, name, getattr(words, name), wanted)
    _check_addresses(run, windows, one, loaded, words)
    room = max(one.shared - (kernel.static_shared or RESERVED_SHARED), 0)
    declared = words.dynamic_shared_size
    if declared > room:
        raise launch_error(
            f"constant bank 0 of {kernel.name}: {declared:#x} bytes of dynamic shared memory, room is for "
            f"{room:#x}"
        )
    _check_stack(words.stack_pointer, one, loaded)
    return int(declared or room)


def _check_shape(
    run: EngineChannel, loaded: LoadedImage, name: str, seen: tuple[int, ...], wanted: tuple[int, int, int]
) -> None:
    """Refuse a wrong number of threads or workgroups in bank 0.

    A number of 0 that the code does not read gives advice only.
    """
    if seen == wanted:
        return
    text = f"constant bank 0 of {loaded.kernel.name}: {name} is {seen}, launched with {wanted}"
    if any(seen) or f"%{name}" in loaded.cubin.ptx:
        raise launch_error(text)
    run.machine.lint(f"{text}; the code does not read it")


def _check_addresses(
    run: EngineChannel, windows: Windows, one: LaunchDescriptor, loaded: LoadedImage, words: Any
) -> None:
    """Raise `ChannelError` if addresses or counts in bank 0 contradict the channel's settings."""
    name = loaded.kernel.name
    allowed = {
        "shared_window": windows.shared,
        "local_window": windows.local,
        "constant_bank_3": one.banks[3].va if 3 in one.banks else 0,
        "global_descriptor": 0,
        "nsmid": run.gpu.profile.sms,
        "reserved_shared_size": RESERVED_SHARED,
    }
    for word, wanted in allowed.items():
        seen = getattr(words, word)
        if seen not in (0, wanted):
            raise launch_error(
                f"constant bank 0 of {name}: {word} is {seen:#x}, wanted {wanted or 0:#x} or nothing"
            )
    _check_clusters(run, one, loaded, words)
    # Hopper has the shared window in hardware (nv.md 5.3); on others, code that uses shared memory reads the
    # word. Code does not use the reserved part (nv.md 5.6).
    shared = max(loaded.kernel.static_shared, one.shared) > RESERVED_SHARED
    reads_shared = shared and run.gpu.profile.name != "sm_90"
    for word, used in (("shared_window", reads_shared), ("local_window", loaded.kernel.stack)):
        if used and not getattr(words, word):
            raise launch_error(f"constant bank 0 of {name}: {word} is 0, and its code may read it")


def _check_clusters(run: EngineChannel, one: LaunchDescriptor, loaded: LoadedImage, words: Any) -> None:
    """Raise `ChannelError` if the words of bank 0 that describe clusters contradict the descriptor.

    In a launch with clusters, a word of 0 is an error if the code reads it, else advice. A cluster must fit
    one GPC.
    """
    cluster = one.cluster or (1, 1, 1)
    x, y, z = (count // size for count, size in zip(one.grid, cluster, strict=True))
    size = cluster[0] * cluster[1] * cluster[2]
    for word, wanted in (("cluster_nctaid", cluster), ("nclusterid", (x, y, z)), ("cluster_nctarank", size)):
        seen = getattr(words, word, 0)  # the other layouts have no such words
        if seen == wanted:
            continue
        read = one.cluster is not None and f"%{word}" in loaded.cubin.ptx
        text = f"constant bank 0 of {loaded.kernel.name}: {word} is {seen}, wanted {wanted}"
        if seen not in (0, (0, 0, 0)) or read:
            raise launch_error(text if read else f"{text} or nothing")
        if one.cluster is not None:
            run.machine.lint(f"{text}; the code does not read it")
    if one.cluster is not None and (most := _clusters_fit(run, one)) < size:
        raise launch_error(
            f"clusters of {cluster} with {one.threads} threads, {one.registers} registers and "
            f"{one.shared:#x} bytes shared: at most {most} such workgroups are resident together in one GPC; "
            "try smaller clusters or workgroups"
        )


def _clusters_fit(run: EngineChannel, one: LaunchDescriptor) -> int:
    """Return how many workgroups of a launch the GPC with most TPCs can hold at the same time."""
    profile = run.gpu.profile
    warps = -(-one.threads // 32)
    per_sm = min(
        MAX_WARPS_PER_SM // warps,
        65536 // max(-(-one.registers * 32 // 256) * 256 * warps, 1),
        (max(profile.chip.carveouts_kib) << 10) // max(one.shared, RESERVED_SHARED),
    )
    sms = max(mask.bit_count() for mask in profile.tpc_masks) * SMS_PER_TPC
    return per_sm * sms


def _check_stack(pointer: int, one: LaunchDescriptor, loaded: LoadedImage) -> None:
    """Raise `ChannelError` for a wrong stack pointer.

    It is the top of the window with a high size, or a size within the low one.
    """
    low, high = one.local
    stack = loaded.kernel.stack
    if not stack:
        return
    top = pointer == STACK_POINTER_TOP and high >= stack + layout.LOCAL_STACK_RESERVE
    if not top and not stack <= pointer <= low:
        raise launch_error(
            f"{loaded.kernel.name} has {stack:#x} bytes of stack: the stack pointer {pointer:#x} fits "
            f"neither the low size {low:#x} nor the high size {high:#x}"
        )


def _check_local(run: EngineChannel, windows: Windows, one: LaunchDescriptor, loaded: LoadedImage) -> None:
    """Raise `ChannelError` unless local memory is backed for every thread that may run (nv.md 2.8)."""
    name, tpcs = loaded.kernel.name, run.gpu.profile.tpcs
    if windows.backing is None or windows.per_tpc is None or windows.sm_count is None:
        raise launch_error(f"{name} has local memory, but its address, size or count of SMs was never set")
    for size in one.local:
        if size % layout.LOCAL_THREAD_ALIGN:
            raise launch_error(
                f"local memory of {size:#x} bytes a thread is no multiple of {layout.LOCAL_THREAD_ALIGN}"
            )
    warp = _rounded(sum(one.local) * layout.LOCAL_THREADS_PER_WARP, layout.LOCAL_WARP_ALIGN)
    needed = _rounded(warp * MAX_WARPS_PER_SM * SMS_PER_TPC, layout.LOCAL_TPC_ALIGN)
    if windows.per_tpc < needed or windows.per_tpc % layout.LOCAL_TPC_ALIGN:
        raise launch_error(
            f"local memory is set up for {windows.per_tpc:#x} bytes a TPC, {name} needs {needed:#x}, in "
            f"steps of {layout.LOCAL_TPC_ALIGN:#x}"
        )
    if windows.sm_count < tpcs:  # drivers use the number of TPCs or 0xff; which is right is not settled
        raise launch_error(
            f"local memory is set up for {windows.sm_count} SMs: wanted {tpcs} at least, one a TPC"
        )
    total = _rounded(windows.per_tpc * tpcs, layout.LOCAL_TOTAL_ALIGN)
    what = f"{windows.per_tpc:#x} bytes a TPC: local memory of {name}"
    run.space.check_range(windows.backing, total, AccessKind.WRITE, what)
    _check_backing(run, windows.backing, windows.per_tpc, name)


def _check_backing(run: EngineChannel, backing: int, per_tpc: int, name: str) -> None:
    """Report a backing that does not cover the highest TPC number; the numbers have gaps (nv.md 2.8)."""
    profile = run.gpu.profile
    highest = profile.tpc_numbers[-1]
    last = _rounded(per_tpc * (highest + 1), layout.LOCAL_TOTAL_ALIGN)
    mapping = run.space.map.find(backing)
    seen = 0 if mapping is None else mapping.end - backing
    if seen >= last:
        return
    dies = profile.gpcs * profile.tpcs_per_gpc
    wanted = _rounded(per_tpc * dies, layout.LOCAL_TOTAL_ALIGN)
    run.machine.report_unverified(
        f"the backing of local memory of {name} has {seen:#x} bytes, wanted {wanted:#x}: "
        f"{per_tpc:#x} per TPC x {dies} TPCs of the full die "
        f"({profile.gpcs} GPCs x {profile.tpcs_per_gpc}, the litter counts). {profile.tpcs} TPCs are in use, "
        f"with gaps between their numbers; the highest is {highest}. Only one source says that a part for "
        "each TPC in use suffices",
        launch_error,
    )


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step
