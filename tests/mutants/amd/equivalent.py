"""Classes of mutants of AMD's packets and calls that change nothing, each with the fact that makes it so.

The same bytes under every seed are no proof: a mutant that no class names survives. Sections are those of the
project's fact sheet of AMD (facts/amd.md).

Not here: how mutants are judged (`tests.mutants.judge`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.mutants.sites import Mutant


@dataclass(frozen=True, slots=True)
class Class:
    """Mutants that change nothing."""

    label: re.Pattern[str]
    fact: str
    operations: frozenset[str]


_ALL: Final = frozenset({"zero", "ones", "plus", "minus", "delete"})
_MORE: Final = frozenset({"ones", "plus"})
CLASSES: Final = (
    Class(
        re.compile(r" request (size|direction)$"),
        "1: the kernel selects by number, extends a shorter structure with zeros, and copies as it declares",
        _ALL,
    ),
    Class(
        re.compile(
            r"^(CREATE_QUEUE of \w+ \w+\.(doorbell_offset|queue_id)|GET_VERSION \w+\.\w+_version"
            r"|CREATE_EVENT \w+\.event_(id|slot_index|trigger_data)"
            r"|ALLOC_MEMORY_OF_GPU \w+\.(handle|mmap_offset)"
            r"|GET_CLOCK_COUNTERS \w+\.\w+_(counter|freq))$"
        ),
        "1.1: the kernel writes the field and reads none of it (an offset is read of a user pointer alone)",
        _ALL,
    ),
    Class(
        re.compile(r"^GET_PROCESS_APERTURES_NEW of a count \w+\.kfd_process_device_apertures_ptr$"),
        "1.3: where num_of_nodes is 0 the count alone is given",
        _ALL,
    ),
    Class(
        re.compile(r"^CREATE_EVENT \w+\.auto_reset$"),
        "1.6: counts once an event is signalled, where staying so is reported; faults alone signal others",
        frozenset({"zero"}),
    ),
    Class(
        re.compile(r"^ALLOC_MEMORY_OF_GPU \w+\.flags$"),
        "1.4: VRAM is 1 and GTT 2: system memory with the same rights, which is legal and slower",
        frozenset({"plus"}),
    ),
    Class(re.compile(r"\.pad\w*$"), "1.1: no meaning", _ALL),
    Class(
        re.compile(r"drm_amdgpu_info\.return_size$"), "1.9: the reply is as long as both sides know", _MORE
    ),
    Class(
        re.compile(r"^CREATE_QUEUE of SDMA \w+\.(eop_buffer|ctl_stack|ctx_save_restore)_size$"),
        "1.5: copy queues have no end-of-pipe buffer and no save area: their sizes are not read",
        _ALL,
    ),
    Class(
        re.compile(r"^CREATE_QUEUE of COMPUTE_AQL \w+\.eop_buffer_address$"),
        "D8, 1.5: AMD's library gives AQL queues of gfx942 no end-of-pipe buffer, and the kernel takes it",
        frozenset({"zero"}),
    ),
    Class(
        re.compile(r"^CREATE_QUEUE of (SDMA|COMPUTE|COMPUTE_AQL) \w+\.sdma_engine_id$"),
        "1.5: read for SDMA_BY_ENG_ID alone",
        _ALL,
    ),
    Class(
        re.compile(r"^CREATE_QUEUE of \w+ \w+\.queue_(priority|percentage)$"),
        "1.5: which queue runs first, and how long: speed",
        frozenset({"zero", "plus", "minus"}),
    ),
    Class(
        re.compile(r"^RUNTIME_ENABLE \w+\.(r_debug|capabilities_mask)$"),
        "1.1, 1.2: an address that debuggers ask for, and the kernel's reply",
        _ALL,
    ),
    Class(re.compile(r"^CREATE_EVENT \w+\.node_id$"), "Linux 6.12 kfd_events.c: no event is of a node", _ALL),
    Class(re.compile(r"^mmap prot$"), "x86: a page that may be written may be read", frozenset({"minus"})),
    Class(re.compile(r"^mmap prot$"), "mmap(2): a right more than is used", frozenset({"ones"})),
    Class(re.compile(r"^mmap size$"), "mmap(2): a size is rounded up to pages", frozenset({"minus"})),
    Class(
        re.compile(r"^doorbell of "),
        "3: a doorbell gives how far the ring is written, and so does the next one of the queue",
        frozenset({"delete"}),
    ),
    Class(re.compile(r"^fence$"), "3: on x86 stores to write-back memory are seen in their order", _ALL),
    Class(
        re.compile(
            r"(RELEASE_MEM of an event(\.(DATA_(LO|HI|SEL)|GL[IKVM12]+_(INV|WB)|TC\w*))?"
            r"|FENCE of an event(\.DATA|\._op| header\.OP)?)$"
        ),
        "7: any value but all ones signals a slot; interrupts end sleep, and a host that waits reads again",
        _ALL,
    ),
    Class(
        re.compile(
            r"ACQUIRE_MEM of (what another does"
            r"|((GL[K1V]_INV|GL[M2]_(INV|WB)|SH_KCACHE|TCL?1?|TC_WB)(, )?)+)(\.GCR_CNTL)?$"
        ),
        "docs/facts/amd-caches.md, errors 2 to 4: no load or copy behind it relied on it",
        frozenset({"delete", "zero"}),
    ),
    Class(
        re.compile(r"EVENT_WRITE before a release$"),
        "4.2, 7: a signal is a RELEASE_MEM alone, which is at the end of the pipe behind all earlier work",
        frozenset({"delete"}),
    ),
    Class(
        re.compile(r" again$"),
        "4.2, 5: the ACQUIRE_MEM next to it, or the fence of the dispatch behind it, does the same",
        frozenset({"zero", "minus"}),
    ),
    Class(
        re.compile(r"ACQUIRE_MEM .*\.GCR_CNTL$"),
        "4.2: one more invalidates the instruction caches: speed",
        frozenset({"plus"}),
    ),
    Class(
        re.compile(r"(Pm4Ib|KernelDispatch|Barrier\w+)\.(ACQUIRE|RELEASE)_SCOPE$"),
        "docs/facts/amd-caches.md, errors 2 and 4: no load or copy behind it relied on it",
        frozenset({"zero", "minus"}),
    ),
    Class(
        re.compile(r"RELEASE_MEM\.DATA_SEL$"),
        "4.2: 32 bits are stored, not 64: a timeline starts at 0 and stays below 2^31",
        frozenset({"minus"}),
    ),
    Class(
        re.compile(r"(KernelDispatch|Pm4Ib)\.BARRIER$"),
        "5: no packet of the queue is before it, or kernels that share nothing: races are reported",
        frozenset({"zero"}),
    ),
    Class(
        re.compile(r"PRED_EXEC\.DEVICE_SELECT$"),
        "5: behind the barrier all XCCs are done: any one of them may signal",
        frozenset({"plus"}),
    ),
    Class(
        re.compile(r"KernelDispatch\.DIMENSIONS$"),
        "5: sizes beyond the dimensions are 1, which is checked: the same grid",
        frozenset({"minus"}),
    ),
    Class(
        re.compile(r"COMPUTE_PGM_RSRC2\.LDS_SIZE$|KernelDispatch\.(GROUP|PRIVATE)_SEGMENT_SIZE$"),
        "8.3: LDS and scratch beyond what the kernel names belong to the launch: speed",
        _MORE,
    ),
    Class(
        re.compile(r"Initiator\.USE_THREAD_DIMENSIONS$"),
        "4.2: dimensions count threads: the same grid where a workgroup has one",
        frozenset({"ones"}),
    ),
    Class(re.compile(r"\.(POLL_)?INTERVAL$"), "4.2, 6: how often a word is polled: speed", _ALL),
    Class(
        re.compile(r"\.OPTIMIZE_ACE_OFFLOAD_MODE$|\.OFFLOAD_POLLING$"), "4.2: how a wait polls: speed", _ALL
    ),
    Class(re.compile(r"WAIT_REG_MEM\.OPERATION$"), "4.2: 3 is a wait that may be preempted", _MORE),
    Class(re.compile(r"\.(CACHE_POLICY|TEMPORAL)$"), "4.2: which lines the L2 keeps: speed", _ALL),
    Class(re.compile(r"header\.SHADER_TYPE$"), "4.1: ignored since gfx9", _ALL),
    Class(
        re.compile(
            r"(GcrCntl|RELEASE_MEM( of an event)?|ACQUIRE_MEM)\.(GLM_|CB$|DB$|TC_INV_METADATA$|TC_MD_ACTION$)"
        ),
        "4.2: metadata of images and of the graphics back end; kernels here have none",
        _ALL,
    ),
    Class(
        re.compile(
            r"(GcrCntl|RELEASE_MEM( of an event)?|ACQUIRE_MEM)\."
            r"(GL[IKV12]+_(INV|WB)|TCL?1?(_VOL|_WB|_NC|_WC)?(_ACTION)?|SH_[IK]CACHE|KCACHE_(VOL|WB))$"
        ),
        "4.2: caches are invalidated or written back that need not be: speed",
        _MORE,
    ),
    Class(
        re.compile(r"GcrCntl\.SEQ$|RELEASE_MEM( of an event)?\.SEQ$"),
        "4.2: the order of operations that all complete",
        _ALL,
    ),
    Class(
        re.compile(r"GcrCntl\.GLK_WB$|\.KCACHE_WB$"), "docs/facts/amd-caches.md: no kernel stores to it", _ALL
    ),
    Class(
        re.compile(
            r"(RELEASE_MEM|ACQUIRE_MEM|GcrCntl)\.(GLV_INV|GL1_INV|GL2_(INV|WB)|TCL1|TC|TC_WB)(_ACTION)?$"
        ),
        "docs/facts/amd-caches.md, errors 2 and 4: no load or copy behind it relied on it",
        frozenset({"zero", "minus"}),
    ),
    Class(
        re.compile(r"GcrCntl\.GLK_INV$|ACQUIRE_MEM\.SH_KCACHE$"),
        "docs/facts/amd-caches.md, errors 2 and 3: no load behind it met a line that the scalar cache held",
        frozenset({"zero", "minus"}),
    ),
    Class(re.compile(r"COMPUTE_START_[XYZ]"), "4.2: FORCE_START_AT_000 starts at 0", _ALL - {"delete"}),
    Class(re.compile(r"COMPUTE_RESOURCE_LIMITS"), "4.3: limits of waves in flight: speed", _ALL),
    Class(
        re.compile(r"COMPUTE_(TMPRING_SIZE|DISPATCH_SCRATCH_BASE_(LO|HI))"),
        "8.4: read where SCRATCH_EN is set; the scenario's kernels have no scratch",
        _ALL,
    ),
    Class(
        re.compile(r"COMPUTE_PGM_RSRC2\.TRAP_PRESENT$"), "4.4: AMD's tests set it, tinygrad does not", _ALL
    ),
    Class(re.compile(r"COMPUTE_PGM_RSRC1\.PRIV$"), "D9: sources differ where it is set", _ALL),
    Class(
        re.compile(
            r"Initiator\.(ORDER_MODE|FORCE_START_AT_000|(SCALAR|VECTOR)_L1_INV_VOL|DISABLE_DISP_PREMPT_EN)$"
        ),
        "4.2: order of workgroups, a start of 0, more invalidation, preemption: none changes results",
        _ALL,
    ),
)
"""In the order in which they are tried."""


def fact(mutant: Mutant) -> str:
    """Return the fact by which a mutant changes nothing; empty where no class names it."""
    for one in CLASSES:
        if mutant.operation in one.operations and one.label.search(mutant.label):
            return one.fact
    return ""
