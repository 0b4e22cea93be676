"""The script of the scripted NVIDIA kernel: the driver version, the GPU, and the replies to controls.

Not here: the calls themselves and their checks (`scripted`).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drivers.kernel import view_at
from drivers.nv.layouts.chips import GENERATIONS, Generation
from drivers.nv.layouts.controls import Control, FbInfo, GrInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOPPER = 0xCBC0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The driver version and the GPU that the scripted kernel represents."""

    version: str = "580.159.03"
    compute_class: int = HOPPER
    gpus: int = 1
    index: int = 0
    """Which of several GPUs of one machine it is, each with a kernel of its own (`ScriptedKernel.others`)."""
    link: str = "pcie"
    """What joins it to the others: "pcie", "nvlink", or nothing ("")."""
    sms: int = 132
    graphics_copy: bool = True
    """Whether a copy object may be allocated on the compute channel."""
    dma_moves: int = 0
    """Bytes between the requested address and the one that RM_MAP_MEMORY_DMA returns."""
    proc_version: bool = False
    """Whether /proc/driver/nvidia/version exists; sandboxes hide it."""
    mig: bool = False
    """Whether the GPU is partitioned (MIG): its class list has no compute class."""
    gr: dict[GrInfo, int] = field(default_factory=dict)
    """Values of GR_GET_INFO that replace the default ones."""
    missing: tuple[str, ...] = ()
    """Device nodes whose opening fails with `missing_errno`."""
    missing_errno: int = errno.ENOENT
    refuse: dict[str, int] = field(default_factory=dict)
    """Name of a class, control or UVM command -> the status that the call returns."""
    replies: dict[Control, Callable[[], dict[str, Any] | None]] = field(default_factory=dict)
    """Control -> a function that returns the fields of its reply, or None where a sandbox filters the
    control."""

    @property
    def generation(self) -> Generation:
        """The table row of the GPU's generation."""
        return GENERATIONS[self.compute_class]


class ControlReplies:
    """The replies to RM controls.

    `tokens` receives the work submit token of each channel that asks for one.
    """

    def __init__(self, script: Script, tokens: dict[int, int]) -> None:
        self._script, self._tokens = script, tokens

    def reply(self, command: Control, target: int, asked: Any) -> dict[str, Any] | None:
        """Return the fields of the reply to a control of object `target`, or None if a sandbox filters it.

        `asked` is the decoded parameter block. Lists that it points to are written in place.
        """
        row = self._script.generation
        if command in self._script.replies:
            return self._script.replies[command]()
        if command == Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST:
            classes = [
                *row.gpfifo,
                *row.usermode,
                *row.copy,
                0x2080,
                *([] if self._script.mig else [row.compute]),
            ]
            if asked.classList:
                view_at(asked.classList, 4 * len(classes)).cast("I")[:] = memoryview(_u32(classes)).cast("I")
            return {"numClasses": len(classes)}
        if command == Control.NV2080_CTRL_CMD_GR_GET_INFO:
            list_ = view_at(asked.grInfoList, 8 * asked.grInfoListSize).cast("I")
            for i in range(asked.grInfoListSize):
                list_[2 * i + 1] = self._gr(GrInfo(list_[2 * i]))
            return {}
        if command == Control.NV2080_CTRL_CMD_FB_GET_INFO_V2:
            infos = tuple(
                type(e)(index=e.index, data=self._fb(FbInfo(e.index)))
                for e in asked.fbInfoList[: asked.fbInfoListSize]
            )
            return {"fbInfoList": infos}
        if command == Control.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN:
            token = 0x10000 * (1 + len(self._tokens)) | 0x10 + len(self._tokens)
            self._tokens[token] = target
            return {"workSubmitToken": token}
        return self._fixed(command)

    def _fixed(self, command: Control) -> dict[str, Any] | None:
        name = f"Scripted {self._script.generation.name}"
        fixed: dict[int, dict[str, Any]] = {
            Control.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2: {"deviceInstance": 0, "subDeviceInstance": 0},
            Control.NV2080_CTRL_CMD_GPU_GET_NAME_STRING: {"gpuNameString": name},
            Control.NV2080_CTRL_CMD_GPU_GET_GID_INFO: {"length": 16, "data": uuid_of(self._script.index)},
            Control.NV2080_CTRL_CMD_CE_GET_ALL_CAPS: {"present": 0b1111, "capsTbl": (b"\1", b"\1")},
            Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER: {
                "numSm": self._script.sms, "numTpc": self._script.sms // 2,
            },
            Control.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE: {"totalBufferSize": 0x123_4000},
            Control.NV2080_CTRL_CMD_MC_GET_ARCH_INFO: {"architecture": self._script.generation.architecture},
            Control.NV2080_CTRL_CMD_PERF_BOOST: {},
            Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE: {},
            Control.NVA06C_CTRL_CMD_PREEMPT: {},
            Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES: {},
        }  # fmt: skip
        return fixed.get(command)

    def _gr(self, index: GrInfo) -> int:
        fixed = {
            GrInfo.SM_VERSION: self._script.generation.sm_version,
            GrInfo.MAX_WARPS_PER_SM: 64,
            GrInfo.LITTER_NUM_GPCS: 8,
            GrInfo.LITTER_NUM_TPC_PER_GPC: 9,
            GrInfo.LITTER_NUM_SM_PER_TPC: 2,
            GrInfo.SHADER_PIPE_COUNT: 8,
        }
        return self._script.gr.get(index, fixed[index])

    def _fb(self, index: FbInfo) -> int:
        kib = 141 << 20  # 141 GiB in KiB, the unit of FB_GET_INFO
        return {
            FbInfo.TOTAL_RAM_SIZE: kib,
            FbInfo.RAM_SIZE: kib,
            FbInfo.HEAP_SIZE: kib,
            FbInfo.HEAP_FREE: kib,
        }.get(index, 0)


def uuid_of(index: int) -> bytes:
    """Return the UUID of a GPU."""
    return bytes(((index + 1) % 256, *range(2, 17)))


def _u32(values: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)
