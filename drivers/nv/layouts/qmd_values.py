"""Values of launch descriptor fields, the same in all versions.

Not here: the descriptors (`qmd_v03`, `qmd_v04`, `qmd_v05`). Next: `drivers.nv.qmd`, which sets the fields.
"""

from __future__ import annotations

import enum

SOURCE = "NVIDIA open-gpu-doc, QMD headers (nv.md 4.4)"


class CallLimit(enum.IntEnum):
    """The check of the call depth."""

    _32 = 0
    NO_CHECK = 1


class ConstantPrefetch(enum.IntEnum):
    """When a constant bank is prefetched."""

    PREFETCH_NONE = 0
    PREFETCH_PRE = 1
    PREFETCH_POST = 2


class CtaDistribution(enum.IntEnum):
    """The placement of clusters."""

    LOAD_BALANCING = 0
    MULTI_CAST = 1


class DependentAction(enum.IntEnum):
    """The action on the dependent descriptor at the end of this grid."""

    QMD_INCREMENT_PUT = 0
    QMD_SCHEDULE = 1
    QMD_INVALIDATE_COPY_SCHEDULE = 3
    QMD_DECREMENT_DEPENDENCE = 4


class InterruptType(enum.IntEnum):
    """The interrupt of a release (V03)."""

    NONE = 0
    TRAP = 1
    CONDITIONAL_TRAP = 2


class MembarType(enum.IntEnum):
    """The memory barrier at the end of a grid."""

    L1_NONE = 0
    L1_SYSMEMBAR = 1
    L1_MEMBAR = 3


class ProgramPrefetchType(enum.IntEnum):
    """The time of the code prefetch; names are spelled as in the header."""

    PREFETCH_LAUNCH = 0
    PREFTECH_POST = 1


class QmdType(enum.IntEnum):
    """The kind of work that the descriptor launches."""

    QUEUE = 0
    GRID_NULL = 1
    GRID_CTA = 2
    GRID_GPC_CGA = 3
    GRID_GPU_CGA = 4
    GRID_GPU_GPC_CGA = 5


class ReductionFormat(enum.IntEnum):
    """The number format of a reducing release."""

    UNSIGNED = 0
    SIGNED = 1


class ReductionFormat32(enum.IntEnum):
    """The number format of a reducing release (V03)."""

    UNSIGNED_32 = 0
    SIGNED_32 = 1


class ReductionOp(enum.IntEnum):
    """The operation of a reducing release."""

    RED_ADD = 0
    RED_MIN = 1
    RED_MAX = 2
    RED_INC = 3
    RED_DEC = 4
    RED_AND = 5
    RED_OR = 6
    RED_XOR = 7


class ReleaseMembar(enum.IntEnum):
    """The barrier before a release."""

    FE_NONE = 0
    FE_SYSMEMBAR = 1


class SamplerIndex(enum.IntEnum):
    """The source of sampler indices."""

    INDEPENDENTLY = 0
    VIA_HEADER_INDEX = 1


class SemaphoreSize(enum.IntEnum):
    """The size of a release; four words include a timestamp."""

    SEMAPHORE_FOUR_WORDS = 0
    SEMAPHORE_ONE_WORD = 1
    SEMAPHORE_TWO_WORDS = 2


class TrapType(enum.IntEnum):
    """The trap of a release."""

    TRAP_NONE = 0
    TRAP_UNCONDITIONAL = 1
    TRAP_CONDITIONAL = 2
    TRAP_CONDITIONAL_EXT = 3
