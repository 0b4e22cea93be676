"""What an emulated NVIDIA GPU, or its kernel driver, refuses: a row for each uncertain value of the driver.

A row describes what the driver sends with the default of the value. An emulated GPU that is opened with the
row refuses it, as a GPU would on which the default is wrong. The evidence for each value, and which public
driver sends what, is in docs/sources.md ("Values that a driver chooses").

Not here: the table that is printed (`tools.bringup.quirks`). Next: `emulator.shared.surprises`, how an
emulated GPU uses a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drivers.nv.layouts.compute import ComputeMethod, NonThrottledC, PcasAction
from drivers.nv.layouts.gpfifo import GpfifoEntry
from drivers.nv.layouts.qmd import QMDS
from drivers.nv.layouts.qmd_values import CtaDistribution, SamplerIndex
from drivers.nv.layouts.rm_classes import (
    NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS,
    NV_CTXSHARE_ALLOCATION_PARAMETERS,
    NV_HOPPER_USERMODE_A_PARAMS,
    NV_MEMORY_ALLOCATION_PARAMS,
    NV_VASPACE_ALLOCATION_PARAMETERS,
    PITCH_KIND,
    Coherency,
    CtxshareFlags,
    EngineType,
    MemAttr,
    MemFlags,
    PageSize,
    RmClass,
    VaspaceFlags,
    copy_engine,
)
from emulator.nv.rm.objects import RmMemory, Subdevice, Usermode
from emulator.shared.surprises import Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emulator.nv.profiles import Profile

_ALL_SMS: Final = 0xFF
_RESERVED_SHARED: Final = 1 << 10
"""Bytes of shared memory of a kernel that declares none: the system reserves them."""
_CONTEXT_WINDOW: Final = 256 << 20
_BAR1_PAGE: Final = 2 << 20
"""Mappings through BAR1 must have a multiple of these bytes."""
_LOWEST_HIGH: Final = 0x80
"""The upper 32 bits of a window's address are at least this where the window lies above all memory."""


def _object(meets: Callable[..., Any]) -> Rejection:
    """Return a row for objects that RM_ALLOC refuses; `meets` gets profile, class, parameters and parent."""
    return Rejection("object", meets)


def _memory(meets: Callable[[Any, MemAttr], Any], cls: RmClass = RmClass.NV01_MEMORY_LOCAL_USER) -> Rejection:
    """Return a row for memory of class `cls` that is refused; `meets` gets parameters and attributes."""

    def asked(_profile: Profile, given: int, block: bytes | None, _above: object) -> Any:
        if given != cls or block is None:
            return False
        params = NV_MEMORY_ALLOCATION_PARAMS.from_bytes(block)
        return meets(params, MemAttr.from_int(params.attr))

    return Rejection("object", asked)


def _descriptor(meets: Callable[[Any], Any]) -> Rejection:
    """Return a row for launch descriptors that cause a fault; `meets` gets the decoded descriptor."""
    return Rejection(
        "descriptor", lambda profile, raw, _: meets(QMDS[profile.generation.qmd].from_bytes(raw))
    )


def _method(which: ComputeMethod, meets: Callable[[int, Any], Any]) -> Rejection:
    """Return a row for data of a method that is refused; `meets` gets the data and the registers."""
    return Rejection("method", lambda method, value, registers: method is which and meets(value, registers))


def _in_video(space: Any, va: int) -> bool:
    found = space.map.find(va, 1)
    return found is not None and str(space.backings[found.va].label).startswith("video")


def _clustered(qmd: Any) -> bool:
    return getattr(qmd, "GPC_CGA_WIDTH", 0) > 1


def _depends(qmd: Any) -> Any:
    prefetch = getattr(qmd, "DEPENDENT_QMD_PREFETCH", None)
    return any(prefetch) if prefetch is not None else qmd.DEPENDENT_QMD0_PREFETCH


def _high_local(qmd: Any) -> Any:
    name = "SHADER_LOCAL_MEMORY_HIGH_SIZE"
    return getattr(qmd, name, 0) or getattr(qmd, name + "_SHIFTED4", 0)


def _shared(qmd: Any) -> int:
    shifted = getattr(qmd, "SHARED_MEMORY_SIZE_SHIFTED7", None)
    return int(qmd.SHARED_MEMORY_SIZE if shifted is None else shifted << 7)


REJECTIONS: Final[Mapping[str, Rejection]] = {
    "channel_class": _object(lambda profile, cls, *_: cls == max(profile.channels)),
    "doorbell_class": _object(lambda profile, cls, *_: cls == max(profile.doorbells)),
    "doorbell_bar1": _object(
        lambda profile, cls, block, _: (
            cls in profile.doorbells and block and NV_HOPPER_USERMODE_A_PARAMS.from_bytes(block).bBar1Mapping
        )
    ),
    "doorbell_owner": Rejection(
        "mapping", lambda target, above: isinstance(target, Usermode) and isinstance(above, Subdevice)
    ),
    "arguments_in_vram": Rejection(
        "mapping",
        lambda target, _: (
            isinstance(target, RmMemory)
            and target.cls == RmClass.NV01_MEMORY_LOCAL_USER
            and target.size % _BAR1_PAGE
        ),
    ),
    "notifier": Rejection("channel", lambda params, _: params.hObjectError),
    "object_buffer": Rejection("channel", lambda params, _: not params.hObjectBuffer),
    "ring": Rejection("channel", lambda _, setup: setup.userd[0].cls == RmClass.NV01_MEMORY_LOCAL_USER),
    "pitch_kind": _memory(lambda params, _: params.format == PITCH_KIND),
    "persistent_vidmem": _memory(lambda params, _: params.flags & MemFlags.PERSISTENT_VIDMEM),
    "huge_pages": _memory(lambda _, attr: attr.PAGE_SIZE is PageSize.HUGE),
    "small_pages": _memory(lambda _, attr: attr.PAGE_SIZE is PageSize.SIZE_4KB),
    "system_cached": _memory(lambda _, attr: attr.COHERENCY is Coherency.CACHED, RmClass.NV01_MEMORY_SYSTEM),
    "copy_engine": _object(
        lambda profile, cls, block, _: (
            cls == RmClass.KEPLER_CHANNEL_GROUP_A
            and NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS.from_bytes(block).engineType
            == copy_engine(profile.graphics_copy_engines)
        )
    ),
    "context_share": _object(lambda _, cls, *__: cls == RmClass.FERMI_CONTEXT_SHARE_A),
    "subcontext": _object(
        lambda _, cls, block, __: (
            cls == RmClass.FERMI_CONTEXT_SHARE_A
            and NV_CTXSHARE_ALLOCATION_PARAMETERS.from_bytes(block).flags == CtxshareFlags.SUBCONTEXT_ASYNC
        )
    ),
    "gr_parameters": _object(
        lambda profile, cls, block, _: cls == profile.generation.compute and block is not None
    ),
    "vaspace": _object(
        lambda _, cls, block, __: (
            cls == RmClass.FERMI_VASPACE_A
            and NV_VASPACE_ALLOCATION_PARAMETERS.from_bytes(block).flags & VaspaceFlags.IS_EXTERNALLY_OWNED
        )
    ),
    "vaspace_faulting": _object(
        lambda _, cls, block, __: (
            cls == RmClass.FERMI_VASPACE_A
            and not NV_VASPACE_ALLOCATION_PARAMETERS.from_bytes(block).flags
            & VaspaceFlags.ENABLE_PAGE_FAULTING
        )
    ),
    "register_copy_channels": Rejection(
        "registered channel", lambda channel, _: channel.group.engine != EngineType.GR0
    ),
    "context_window": Rejection(
        "registered channel",
        lambda channel, params: channel.group.engine == EngineType.GR0 and params.length == _CONTEXT_WINDOW,
    ),
    "gp_level": Rejection("ring entry", lambda raw, _: not GpfifoEntry.from_int(raw).LEVEL),
    "push_in_vram": Rejection(
        "ring entry", lambda raw, space: not _in_video(space, GpfifoEntry.from_int(raw).ADDRESS)
    ),
    "windows": _method(
        ComputeMethod.SET_SHADER_SHARED_MEMORY_WINDOW_A, lambda value, _: value < _LOWEST_HIGH
    ),
    "all_sms": _method(
        ComputeMethod.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C,
        lambda value, _: NonThrottledC.from_int(value).MAX_SM_COUNT == _ALL_SMS,
    ),
    "qmd_version_method": _method(
        ComputeMethod.SEND_PCAS_A, lambda _, registers: ComputeMethod.SET_QMD_VERSION not in registers
    ),
    "pcas": _method(
        ComputeMethod.SEND_SIGNALING_PCAS2_B,
        lambda value, _: value & 0xF == PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE,
    ),
    "full_descriptor": _descriptor(lambda qmd: qmd.INVALIDATE_SHADER_DATA_CACHE),
    "carveout": _descriptor(
        lambda qmd: qmd.TARGET_SM_CONFIG_SHARED_MEM_SIZE and _shared(qmd) <= _RESERVED_SHARED
    ),
    "group_id": _descriptor(lambda qmd: qmd.QMD_GROUP_ID in {0, 0x3F}),
    "sampler_via_header": _descriptor(lambda qmd: qmd.SAMPLER_INDEX is SamplerIndex.INDEPENDENTLY),
    "stack": _descriptor(_high_local),
    "dependent_launch": _descriptor(_depends),
    "cluster_size": _descriptor(lambda qmd: _clustered(qmd) and not qmd.GPU_CGA_WIDTH),
    "cluster_spread": _descriptor(
        lambda qmd: _clustered(qmd) and qmd.CGA_CTA_DISTRIBUTION_MODE is CtaDistribution.LOAD_BALANCING
    ),
}
"""Name of an uncertain value -> what the emulated GPU refuses."""
