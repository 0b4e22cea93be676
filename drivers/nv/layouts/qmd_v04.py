"""Launch descriptor (QMD) V04_00 of Hopper (class cbc0): 96 words.

All fields of the vendor's header are here, under its names. Addresses are split and shifted as in the header;
`drivers.nv.qmd` applies the shifts.

Not here: other versions (`qmd_v03`, `qmd_v05`), values of fields (`qmd_values`). Next: `drivers.nv.qmd`.
"""

# ruff: noqa: TC001 - annotations are read at run time

from __future__ import annotations

from drivers.nv.layouts.qmd_values import (
    CallLimit,
    ConstantPrefetch,
    CtaDistribution,
    DependentAction,
    MembarType,
    ProgramPrefetchType,
    QmdType,
    ReductionFormat,
    ReductionOp,
    ReleaseMembar,
    SamplerIndex,
    SemaphoreSize,
    TrapType,
)
from hcq.layout import BitStruct, bits, optional

SOURCE = "NVIDIA open-gpu-doc, QMD V04_00 of clcbc0qmd.h (nv.md 4.4)"


class QmdV04(BitStruct, words=96, source=SOURCE):
    """A grid: its code, shape, constant banks, releases and dependent grid."""

    DEPENDENCE_COUNTER: int = optional(15, 0)
    QMD_GROUP_ID: int = optional(21, 16)
    ADD_TO_HEAD_OF_QMD_GROUP_LINKED_LIST: bool = optional(22)
    QMD_TYPE: QmdType = optional(25, 23)
    ARRIVE_AT_LATCH_VALID: bool = optional(28)
    WAIT_ON_LATCH_VALID: bool = optional(29)
    REQUIRE_SCHEDULING_PCAS: bool = optional(30)
    TPC_DISABLE_MASK_VALID: bool = optional(31)
    CIRCULAR_QUEUE_SIZE: int = optional(56, 32)
    INNER_GET: int = optional(94, 64)
    INNER_OVERFLOW: bool = optional(95)
    INNER_PUT: int = optional(126, 96)
    INNER_STICKY_OVERFLOW: bool = optional(127)
    HW_ONLY_INNER_GET: int = optional(190, 160)
    HW_ONLY_INNER_PUT: int = optional(222, 192)
    HW_ONLY_SPAN_LIST_HEAD_INDEX: int = optional(253, 224)
    HW_ONLY_SPAN_LIST_HEAD_INDEX_VALID: bool = optional(254)
    HW_ONLY_SKED_NEXT_QMD_POINTER: int = optional(287, 256)
    HW_ONLY_DEPENDENCE_COUNTER: int = optional(303, 288)
    HW_ONLY_REQUIRE_SCHEDULING_PCAS: bool = optional(304)
    RELEASE_ENABLE: tuple[bool, ...] = optional(320, count=3, stride=16)
    RELEASE_STRUCTURE_SIZE: tuple[SemaphoreSize, ...] = optional(322, 321, count=3, stride=16)
    RELEASE_MEMBAR_TYPE: tuple[ReleaseMembar, ...] = optional(323, count=3, stride=16)
    RELEASE_REDUCTION_ENABLE: tuple[bool, ...] = optional(324, count=3, stride=16)
    RELEASE_REDUCTION_OP: tuple[ReductionOp, ...] = optional(327, 325, count=3, stride=16)
    RELEASE_REDUCTION_FORMAT: tuple[ReductionFormat, ...] = optional(329, 328, count=3, stride=16)
    RELEASE_TRAP_TYPE: tuple[TrapType, ...] = optional(331, 330, count=3, stride=16)
    RELEASE_PAYLOAD64B: tuple[bool, ...] = optional(332, count=3, stride=16)
    RELEASE_RESERVED_INFO: tuple[int, ...] = optional(335, 333, count=3, stride=16)
    DEPENDENT_QMD_ENABLE: tuple[bool, ...] = optional(368, count=2, stride=5)
    DEPENDENT_QMD_ACTION: tuple[DependentAction, ...] = optional(371, 369, count=2, stride=5)
    DEPENDENT_QMD_PREFETCH: tuple[bool, ...] = optional(372, count=2, stride=5)
    SELF_COPY_ON_COMPLETION: bool = optional(378)
    DEMOTE_L2_EVICT_LAST: bool = optional(379)
    DISABLE_AUTO_INVALIDATE: bool = optional(380)
    CORRELATION_ID_INTERNAL: bool = optional(381)
    CWD_MEMBAR_TASK_CHASING_ENABLE: bool = optional(382)
    CORRELATION_ID: int = optional(415, 384)
    CONSTANT_BUFFER_VALID: tuple[bool, ...] = optional(416, count=8, stride=4)
    CONSTANT_BUFFER_PREFETCH: tuple[ConstantPrefetch, ...] = optional(418, 417, count=8, stride=4)
    CONSTANT_BUFFER_INVALIDATE: tuple[bool, ...] = optional(419, count=8, stride=4)
    DEPENDENT_QMD0_POINTER: int = optional(479, 448)
    DEPENDENT_QMD1_POINTER: int = optional(511, 480)
    SHADER_LOCAL_MEMORY_LOW_SIZE: int = optional(535, 512)
    SASS_VERSION: int = optional(543, 536)
    SHADER_LOCAL_MEMORY_HIGH_SIZE: int = optional(567, 544)
    API_VISIBLE_CALL_LIMIT: CallLimit = optional(568)
    SAMPLER_INDEX: SamplerIndex = optional(569)
    CONSTANT_BUFFER_PREFETCH_PRE_MAX_SIZE_SHIFTED8: int = optional(575, 570)
    QMD_MINOR_VERSION: int = bits(579, 576, default=0)
    QMD_MAJOR_VERSION: int = bits(583, 580, default=4)
    SHARED_MEMORY_SIZE: int = optional(601, 584)
    INVALIDATE_TEXTURE_HEADER_CACHE: bool = optional(602)
    INVALIDATE_TEXTURE_SAMPLER_CACHE: bool = optional(603)
    INVALIDATE_TEXTURE_DATA_CACHE: bool = optional(604)
    INVALIDATE_SHADER_DATA_CACHE: bool = optional(605)
    INVALIDATE_INSTRUCTION_CACHE: bool = optional(606)
    INVALIDATE_SHADER_CONSTANT_CACHE: bool = optional(607)
    MIN_SM_CONFIG_SHARED_MEM_SIZE: int = optional(613, 608)
    MAX_SM_CONFIG_SHARED_MEM_SIZE: int = optional(619, 614)
    TARGET_SM_CONFIG_SHARED_MEM_SIZE: int = optional(625, 620)
    SHARED_ALLOCATION_ENABLE: bool = optional(626)
    RELEASE_SEMAPHORE0_ADDR_LOWER: int = optional(671, 640)
    RELEASE_SEMAPHORE0_ADDR_UPPER: int = optional(696, 672)
    RELEASE_SEMAPHORE0_PAYLOAD_LOWER: int = optional(735, 704)
    RELEASE_SEMAPHORE0_PAYLOAD_UPPER: int = optional(767, 736)
    RELEASE_SEMAPHORE1_ADDR_LOWER: int = optional(799, 768)
    RELEASE_SEMAPHORE1_ADDR_UPPER: int = optional(824, 800)
    RELEASE_SEMAPHORE1_PAYLOAD_LOWER: int = optional(863, 832)
    RELEASE_SEMAPHORE1_PAYLOAD_UPPER: int = optional(895, 864)
    RELEASE_SEMAPHORE2_ADDR_LOWER: int = optional(927, 896)
    RELEASE_SEMAPHORE2_ADDR_UPPER: int = optional(952, 928)
    RELEASE_SEMAPHORE2_PAYLOAD_LOWER: int = optional(991, 960)
    RELEASE_SEMAPHORE2_PAYLOAD_UPPER: int = optional(1023, 992)
    GRID_WIDTH: int = optional(1055, 1024)
    GRID_HEIGHT: int = optional(1071, 1056)
    GRID_DEPTH: int = optional(1103, 1088)
    CWD_REFERENCE_COUNT_DELTA_MINUS_ONE: int = optional(1127, 1120)
    CWD_REFERENCE_COUNT_ID: int = optional(1133, 1128)
    CWD_REFERENCE_COUNT_INCR_ENABLE: bool = optional(1134)
    CWD_REFERENCE_COUNT_DECR_ENABLE: bool = optional(1135)
    CWD_MEMBAR_TYPE: MembarType = optional(1137, 1136)
    SEQUENTIALLY_RUN_CTAS: bool = optional(1138)
    CTA_LAUNCH_QUEUE: bool = optional(1139)
    FREE_CTA_SLOTS_EMPTY_SM: int = optional(1147, 1140)
    SYNC_DOMAIN_ID: int = optional(1149, 1148)
    PRE_EXIT_AT_LAST_CTA_LAUNCH: bool = optional(1150)
    ENABLE_PROGRAM_PRE_EXIT: bool = optional(1151)
    CTA_THREAD_DIMENSION0: int = optional(1167, 1152)
    CTA_THREAD_DIMENSION1: int = optional(1183, 1168)
    CTA_THREAD_DIMENSION2: int = optional(1199, 1184)
    REGISTER_COUNT: int = optional(1208, 1200)
    BARRIER_COUNT: int = optional(1215, 1211)
    PROGRAM_ADDRESS_LOWER: int = optional(1247, 1216)
    PROGRAM_ADDRESS_UPPER: int = optional(1272, 1248)
    OCCUPANCY_THRESHOLD_WARP: int = optional(1287, 1280)
    OCCUPANCY_MAX_WARP: int = optional(1295, 1288)
    OCCUPANCY_THRESHOLD_REGISTER: int = optional(1303, 1296)
    OCCUPANCY_MAX_REGISTER: int = optional(1311, 1304)
    OCCUPANCY_THRESHOLD_SHARED_MEM: int = optional(1319, 1312)
    OCCUPANCY_MAX_SHARED_MEM: int = optional(1327, 1320)
    PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED: int = optional(1375, 1344)
    PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED: int = optional(1392, 1376)
    PROGRAM_PREFETCH_SIZE: int = optional(1401, 1393)
    PROGRAM_PREFETCH_TYPE: ProgramPrefetchType = optional(1403, 1402)
    LATCH_ACQUIRE_INVALIDATE_SHADER_DATA_CACHE: bool = optional(1406)
    LATCH_ACQUIRE_INVALIDATE_TEXTURE_DATA_CACHE: bool = optional(1407)
    GRID_WIDTH_RESUME: int = optional(1439, 1408)
    GRID_HEIGHT_RESUME: int = optional(1455, 1440)
    GRID_DEPTH_RESUME: int = optional(1471, 1456)
    ARRIVE_AT_LATCH_ID: int = optional(1503, 1472)
    WAIT_ON_LATCH_ID: int = optional(1535, 1504)
    CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6: tuple[int, ...] = optional(1567, 1536, count=8, stride=64)
    CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6: tuple[int, ...] = optional(1586, 1568, count=8, stride=64)
    CONSTANT_BUFFER_SIZE_SHIFTED4: tuple[int, ...] = optional(1599, 1587, count=8, stride=64)
    CIRCULAR_QUEUE_ADDR_LOWER: int = optional(2079, 2048)
    CIRCULAR_QUEUE_ADDR_UPPER: int = optional(2087, 2080)
    CIRCULAR_QUEUE_ENTRY_SIZE: int = optional(2127, 2112)
    COALESCE_WAITING_PERIOD: int = optional(2135, 2128)
    QUEUE_ENTRIES_PER_CTA_LOG2: int = optional(2140, 2136)
    GPC_CGA_WIDTH: int = optional(2149, 2144)
    GPC_CGA_HEIGHT: int = optional(2157, 2152)
    GPC_CGA_DEPTH: int = optional(2165, 2160)
    CGA_CTA_DISTRIBUTION_MODE: CtaDistribution = optional(2207)
    GPU_CGA_WIDTH: int = optional(2223, 2208)
    GPU_CGA_HEIGHT: int = optional(2239, 2224)
    GPU_CGA_DEPTH: int = optional(2255, 2240)
    DEBUG_ID_LOWER: int = optional(2399, 2368)
    DEBUG_ID_UPPER: int = optional(2431, 2400)
    TPC_DISABLE_MASK: tuple[int, ...] = optional(2463, 2432, count=18, stride=32)
    OUTER_PUT: int = optional(3038, 3008)
    OUTER_OVERFLOW: bool = optional(3039)
    OUTER_GET: int = optional(3070, 3040)
    OUTER_STICKY_OVERFLOW: bool = optional(3071)
