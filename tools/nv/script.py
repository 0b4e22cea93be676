"""The script of the scripted kernel: which driver and GPU it plays, and the replies to their controls.

Not here: the calls themselves and their checks (`scripted`).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drivers.kernel import view_at
from drivers.nv.layouts.controls import Control, FbInfo, GrInfo
from drivers.nv.layouts.families import GENERATIONS, Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOPPER = 0xCBC0


class RefusedError(AssertionError):
    """The driver made a call that is not in the script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the played driver and GPU are."""

    version: str = "580.159.03"
    compute_class: int = HOPPER
    gpus: int = 1
    sms: int = 132
    graphics_copy: bool = True
    """A copy object may be allocated beside the compute object."""
    dma_moves: int = 0
    """Bytes by which RM_MAP_MEMORY_DMA maps beside the requested address."""
    proc_version: bool = False
    """/proc/driver/nvidia/version is there; sandboxes hide it."""
    mig: bool = False
    gr: dict[GrInfo, int] = field(default_factory=dict)
    """Numbers of the graphics engine that replace the real ones."""
    missing: tuple[str, ...] = ()
    """Nodes that cannot be opened, with `missing_errno`."""
    missing_errno: int = errno.ENOENT
    refuse: dict[str, int] = field(default_factory=dict)
    """Name of a class, control or UVM command -> status it gets."""
    answers: dict[Control, Callable[[], dict[str, Any] | None]] = field(default_factory=dict)
    """Controls that are answered otherwise: the fields of the reply, or None for one that is filtered."""

    @property
    def generation(self) -> Generation:
        """The row of the GPU."""
        return GENERATIONS[self.compute_class]


class Answers:
    """What the controls of the script answer."""

    def __init__(self, script: Script, objects: dict[int, Any], tokens: dict[int, int]) -> None:
        self._script, self._objects, self._tokens = script, objects, tokens

    def reply(self, command: Control, target: int, asked: Any) -> dict[str, Any] | None:
        """Return the fields of the reply, or None for a control that a sandbox filters."""
        row = self._script.generation
        if command in self._script.answers:
            return self._script.answers[command]()
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
        return self._plain(command)

    def _plain(self, command: Control) -> dict[str, Any] | None:
        name = f"Scripted {self._script.generation.name}"
        fixed: dict[int, dict[str, Any]] = {
            Control.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2: {"deviceInstance": 0, "subDeviceInstance": 0},
            Control.NV2080_CTRL_CMD_GPU_GET_NAME_STRING: {"gpuNameString": name},
            Control.NV2080_CTRL_CMD_GPU_GET_GID_INFO: {"length": 16, "data": bytes(range(1, 17))},
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
        gib = 141 << 20
        return {
            FbInfo.TOTAL_RAM_SIZE: gib,
            FbInfo.RAM_SIZE: gib,
            FbInfo.HEAP_SIZE: gib,
            FbInfo.HEAP_FREE: gib,
        }.get(index, 0)


def _u32(values: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)
