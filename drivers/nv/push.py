"""Push-buffer words: the packet sequences that this driver sends, as tuples of words.

Headers are packed from their layouts once, at import. Functions take addresses and return words.

Not here: the order of the sequences (`encode`), rings (`ring`), the packets' fields (`drivers.nv.layouts`).
Next: `ring`.
"""

from __future__ import annotations

from typing import Final

from drivers.nv import vaspace
from drivers.nv.layouts import compute, dma
from drivers.nv.layouts.gpfifo import MethodHeader, SecOp, Subchannel
from drivers.nv.layouts.host import HostMethod, SemExecute, SemOperation, SetObject
from drivers.nv.quirks import NvQuirks
from drivers.nv.topology import NvGpu
from drivers.shared.uploader import CopyWords

Words = tuple[int, ...]
"""Push-buffer words, 32 bits each."""

_LOW = 0xFFFF_FFFF


def header(subchannel: Subchannel, method: int, count: int, *, op: SecOp = SecOp.INCREMENTING) -> int:
    """Return the header of `count` data words at `method`; for IMMEDIATE, `count` is the data."""
    return MethodHeader.pack(OPCODE=op, COUNT=count, SUBCHANNEL=subchannel, ADDRESS=method)[0]


def _immediate(subchannel: Subchannel, method: int, data: int = 0) -> int:
    return header(subchannel, method, data, op=SecOp.IMMEDIATE)


COMPUTE: Final = Subchannel.COMPUTE
COPY: Final = Subchannel.COPY

_SEM: Final = header(COMPUTE, HostMethod.SEM_ADDR_LO, 5)
_SEM_COPY: Final = header(COPY, HostMethod.SEM_ADDR_LO, 5)
SEM_HEADERS: Final = {COMPUTE: _SEM, COPY: _SEM_COPY}
SEM_WORDS: Final = 6
"""The number of words of `semaphore`."""
SEM_VALUE: Final = 3
"""Index of the value in `semaphore`, low word first."""

ACQUIRE: Final = int(
    SemExecute(OPERATION=SemOperation.ACQ_CIRC_GEQ, ACQUIRE_SWITCH_TSG=True, PAYLOAD_SIZE=True)
)
ACQUIRE_32: Final = int(SemExecute(OPERATION=SemOperation.ACQ_CIRC_GEQ, ACQUIRE_SWITCH_TSG=True))
RELEASE: Final = int(SemExecute(OPERATION=SemOperation.RELEASE, PAYLOAD_SIZE=True))
RELEASE_WFI: Final = int(SemExecute(OPERATION=SemOperation.RELEASE, RELEASE_WFI=True, PAYLOAD_SIZE=True))
RELEASE_WFI_32: Final = int(SemExecute(OPERATION=SemOperation.RELEASE, RELEASE_WFI=True))
RELEASE_WFI_TIME: Final = int(
    SemExecute(OPERATION=SemOperation.RELEASE, RELEASE_WFI=True, PAYLOAD_SIZE=True, RELEASE_TIMESTAMP=True)
)

HALF_WIDTH: Final = frozenset({ACQUIRE_32, RELEASE_WFI_32})
"""The operations with a payload of 32 bits."""

WAIT_FOR_IDLE: Final = _immediate(COMPUTE, compute.ComputeMethod.WAIT_FOR_IDLE)
HOST_WFI: Final = _immediate(COMPUTE, HostMethod.WFI)

PCAS_A: Final = header(COMPUTE, compute.ComputeMethod.SEND_PCAS_A, 1)
PCAS2_B: Final = header(COMPUTE, compute.ComputeMethod.SEND_SIGNALING_PCAS2_B, 1)

_COPY_OFFSETS: Final = header(COPY, dma.DmaMethod.OFFSET_IN_UPPER, 4)
_COPY_OUT: Final = header(COPY, dma.DmaMethod.OFFSET_OUT_UPPER, 2)
_COPY_LENGTH: Final = header(COPY, dma.DmaMethod.LINE_LENGTH_IN, 1)
_COPY_LAUNCH: Final = header(COPY, dma.DmaMethod.LAUNCH_DMA, 1)
_COPY_SEMAPHORE: Final = header(COPY, dma.DmaMethod.SET_SEMAPHORE_A, 3)
_COPY_CONST: Final = header(COPY, dma.DmaMethod.SET_REMAP_CONST_A, 1)
_COPY_COMPONENTS: Final = header(COPY, dma.DmaMethod.SET_REMAP_COMPONENTS, 1)

_PITCH: Final = dma.LaunchDma(
    DATA_TRANSFER_TYPE=dma.DataTransferType.NON_PIPELINED, SRC_MEMORY_LAYOUT=True, DST_MEMORY_LAYOUT=True
)
LAUNCH_COPY: Final = int(_PITCH)
LAUNCH_FILL: Final = int(_PITCH.replace(FLUSH_ENABLE=True, REMAP_ENABLE=True))
LAUNCH_SIGNAL: Final = int(
    dma.LaunchDma(
        DATA_TRANSFER_TYPE=dma.DataTransferType.NONE,
        FLUSH_ENABLE=True,
        SEMAPHORE_TYPE=dma.DmaSemaphoreType.RELEASE_ONE_WORD,
    )
)
LAUNCH_TIME: Final = int(
    dma.LaunchDma(
        DATA_TRANSFER_TYPE=dma.DataTransferType.NONE,
        FLUSH_ENABLE=True,
        SEMAPHORE_TYPE=dma.DmaSemaphoreType.RELEASE_FOUR_WORD,
    )
)
FILL_COMPONENTS: Final = int(dma.RemapComponents(DST_X=dma.RemapSource.CONST_A, COMPONENT_SIZE=3))


def semaphore(subchannel: Subchannel, va: int, value: int, execute: int) -> Words:
    """Acquire or release a semaphore with the host engine.

    `execute` is `ACQUIRE`, `RELEASE` or a variant of them above. The 32-bit variants use the low half of
    `value`. An acquire waits until the slot is at least `value`, compared modulo 2^64 or 2^32.
    """
    return (SEM_HEADERS[subchannel], va & _LOW, va >> 32, value & _LOW, value >> 32, execute)


def copy(dst: int, src: int, size: int) -> Words:
    """Copy `size` bytes with the copy engine, in pieces of at most MAX_COPY_BYTES."""
    words: Words = ()
    while size > 0:
        piece = min(size, dma.MAX_COPY_BYTES)
        words += (_COPY_OFFSETS, src >> 32, src & _LOW, dst >> 32, dst & _LOW)
        words += (_COPY_LENGTH, piece, _COPY_LAUNCH, LAUNCH_COPY)
        dst, src, size = dst + piece, src + piece, size - piece
    return words


COPY_SITES_SRC: Final = (1, 2)
COPY_SITES_DST: Final = (3, 4)
COPY_SITE_SIZE: Final = 6
"""Indices, in the words of a `copy` of one piece, of the upper and lower address words and of the length."""


def fill(dst: int, value: int, size: int) -> Words:
    """Fill `size` bytes, a multiple of 4, with a u32, by the copy engine."""
    words: Words = (_COPY_CONST, value, _COPY_COMPONENTS, FILL_COMPONENTS)
    while size > 0:
        piece = min(size, dma.MAX_COPY_BYTES)
        words += (_COPY_OUT, dst >> 32, dst & _LOW, _COPY_LENGTH, piece >> 2, _COPY_LAUNCH, LAUNCH_FILL)
        dst, size = dst + piece, size - piece
    return words


FILL_SITE_VALUE: Final = 1
FILL_SITES_DST: Final = (5, 6)
FILL_SITE_SIZE: Final = 8
"""Indices, in the words of a `fill` of one piece, of the value, the address words and the length (in u32)."""


def copy_signal(va: int, value: int, launch: int = LAUNCH_SIGNAL) -> Words:
    """Release a 32-bit semaphore once earlier copies are done and visible; `launch` may add a timestamp."""
    return (_COPY_SEMAPHORE, va >> 32, va & _LOW, value, _COPY_LAUNCH, launch)


def _signalled(words: Words, va: int, value: int) -> Words:
    return (*words, *copy_signal(va, value))


UPLOADS: Final = CopyWords(
    copy=copy,
    signalled=_signalled,
    late="the driver's copy channel did not finish",
    hint=(
        "the doorbell did not reach the GPU, or its firmware (GSP) does not run the channel: `dmesg | grep "
        "NVRM`; `hcq bringup` tries other doorbells and rings (rung 12 and on)"
    ),
)
"""The driver's own copies and fills."""
COPY_SIGNAL_VALUE: Final = 3
"""Index of the value in the words of `copy_signal`."""


def graphics_copy_end(slot: int) -> Words:
    """Make a compute channel wait for its copy engine, by the u32 at address `slot`, which must be 0."""
    return (
        *copy_signal(slot, 1),
        *semaphore(COPY, slot, 1, ACQUIRE_32),
        *semaphore(COPY, slot, 0, RELEASE),
    )


def launch(descriptor: int, action: compute.PcasAction) -> Words:
    """Launch the grid with the descriptor at address `descriptor`."""
    return (PCAS_A, descriptor >> 8, PCAS2_B, int(compute.SendSignalingPcas2B(PCAS_ACTION=action)))


def compute_setup(gpu: NvGpu, choices: NvQuirks, *, copies: bool) -> Words:
    """Return the words that initialise a compute channel: objects, caches, windows (nv.md 3.4).

    `copies`: the channel also has a copy engine object.
    """
    method = compute.ComputeMethod
    shared, local = vaspace.WINDOWS[choices.windows]
    words: list[int] = [
        header(COMPUTE, method.SET_OBJECT, 1),
        int(SetObject(CLASS=gpu.compute_class)),
        _immediate(COMPUTE, method.INVALIDATE_SKED_CACHES),
        _immediate(COMPUTE, method.INVALIDATE_SAMPLER_CACHE_NO_WFI),
        _immediate(COMPUTE, method.INVALIDATE_TEXTURE_HEADER_CACHE_NO_WFI),
        header(COMPUTE, method.SET_SHADER_SHARED_MEMORY_WINDOW_A, 2),
        shared >> 32,
        shared & _LOW,
        header(COMPUTE, method.SET_SHADER_LOCAL_MEMORY_WINDOW_A, 2),
        local >> 32,
        local & _LOW,
    ]
    if choices.qmd_version_method:
        spa = compute.SetSpaVersion(MAJOR=gpu.sm_version >> 8, MINOR=gpu.sm_version & 0xFF)
        words += (
            header(COMPUTE, method.SET_QMD_VERSION, 1),
            compute.QMD_VERSION_HOPPER,
            header(COMPUTE, method.SET_SPA_VERSION, 1),
            int(spa),
        )
    if copies:
        words += copy_setup(gpu)
    return tuple(words)


def copy_setup(gpu: NvGpu) -> Words:
    """Return the words that initialise a copy channel."""
    return (header(COPY, dma.DmaMethod.SET_OBJECT, 1), int(SetObject(CLASS=gpu.copy_class)))


def local_memory(va: int, bytes_per_tpc: int, tpcs: int, *, all_sms: bool) -> Words:
    """Wait until the compute engine is idle, then set the backing of local memory."""
    method = compute.ComputeMethod
    return (
        WAIT_FOR_IDLE,
        header(COMPUTE, method.SET_SHADER_LOCAL_MEMORY_A, 2),
        va >> 32,
        va & _LOW,
        header(COMPUTE, method.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, 3),
        bytes_per_tpc >> 32,
        bytes_per_tpc & _LOW,
        compute.MAX_SM_COUNT_ALL if all_sms else tpcs,
    )


_CACHES: Final = int(compute.InvalidateShaderCaches(INSTRUCTION=True, DATA=True, CONSTANT=True))


def new_code() -> Words:
    """Invalidate the shader caches, after code was loaded at addresses that may have held other code."""
    return (header(COMPUTE, compute.ComputeMethod.INVALIDATE_SHADER_CACHES, 1), _CACHES)


def report_semaphore(va: int, value: int) -> Words:
    """Release a four-word semaphore of the compute class, with a timestamp.

    Used by the bring-up ladder only.
    """
    return (header(COMPUTE, compute.ComputeMethod.SET_REPORT_SEMAPHORE_A, 4), va >> 32, va & _LOW, value, 0)
