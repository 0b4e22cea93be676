"""The bugs planted in the AMD driver: the edit of each, and the pattern that a report must match.

`old` occurs exactly once in its file, which a test checks. `names` is a regular expression that the message
to the user must match, ignoring case: it describes the mistake itself; the mention of a fault is not enough.

The bugs were chosen from the driver's source and from what other user-space drivers of AMD GPUs got wrong.

Not here: applying an edit (`tools.mutants.planted.run`), the program (`program`).
"""

# ruff: noqa: E501 - lines of the driver's source are quoted unchanged

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.mutants.planted.bug import Bug, Catalog

BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        name="amd doorbell before the write pointer",
        file="ring.py",
        old="        queue.write_pointer[0] = position\n        fence()\n        queue.ring_doorbell(position)",
        new="        queue.ring_doorbell(position)\n        fence()\n        queue.write_pointer[0] = position",
        names=r"write pointer in memory",
        seen="firmware that polls the pointer in memory misses the last submission",
    ),
    Bug(
        name="amd pointers of copy queues in dwords",
        file="ring.py",
        old="        self._shift = 2 if queue.packets is Packets.SDMA else 0",
        new="        self._shift = 0",
        names=r"dwords, \d+ are left|multiple of 4",
        seen="PM4 rings count dwords, SDMA rings bytes",
    ),
    Bug(
        name="amd ring not filled before its end",
        file="ring.py",
        old='            self._words[at:] = array("I", (self._filler,)) * left\n',
        new="            pass\n",
        names=r"header 0x0+ is of type 0|beyond its end",
        seen="what lies there are packets of the lap before",
    ),
    Bug(
        name="amd doorbell of the first queue",
        file="queues.py",
        old="        return page, inside\n",
        new="        return page, 0\n",
        names=r"doorbell",
        seen="the offset that CREATE_QUEUE returns taken for that of the page",
    ),
    Bug(
        name="amd read and write pointer exchanged",
        file="queues.py",
        old="            write_pointer=self.write_va,\n            read_pointer=self.read_va,",
        new="            write_pointer=self.read_va,\n            read_pointer=self.write_va,",
        names=r"write pointer",
        seen="two addresses of one page, next to each other in the structure",
    ),
    Bug(
        name="amd end-of-pipe buffer of half a page",
        file="queues.py",
        old="            eop=(self.eop.va, self.eop.size) if self.eop else (0, 0),",
        new="            eop=(self.eop.va, self.eop.size // 2) if self.eop else (0, 0),",
        names=r"EOP buffer of 2048|eop_buffer_size=(2048|0x800)",
        seen="2048 bytes were enough for older kernels",
    ),
    Bug(
        name="amd barrier without a flush",
        file="encode.py",
        old="            out.words += packets.FLUSH\n            return\n",
        new="            return\n",
        names=r"race|before|order",
        seen="kernels of one queue overlap unless CS_PARTIAL_FLUSH stands between",
    ),
    Bug(
        name="amd upper half of the arguments' address missing",
        file="encode.py",
        old="        words[kernarg], words[kernarg + 1] = va & _LOW, va >> 32\n        self._launched",
        new="        words[kernarg], words[kernarg + 1] = va & _LOW, 0\n        self._launched",
        names=r"arguments",
        seen="tests in the lowest 4 GiB pass",
    ),
    Bug(
        name="amd scratch of no size",
        file="encode.py",
        old="            words[at + sites.tmpring] = backing.tmpring",
        new="            words[at + sites.tmpring] = 0",
        names=r"TMPRING",
        seen="kernels without private memory run, the others hang",
    ),
    Bug(
        name="amd scratch address not shifted",
        file="encode.py",
        old="            base = backing.va >> PROGRAM_SHIFT",
        new="            base = backing.va",
        names=r"scratch",
        seen="the register takes address >> 8, as that of the code",
    ),
    Bug(
        name="amd copy of one byte too many",
        file="encode_sdma.py",
        old="            COUNT_MINUS_ONE=size - 1,",
        new="            COUNT_MINUS_ONE=size,",
        names=r"past the (last byte|end)",
        seen="the field is the number less one since SDMA 4",
    ),
    Bug(
        name="amd fill counted in dwords",
        file="encode_sdma.py",
        old="            COUNT=size - 4,",
        new="            COUNT=size // 4 - 1,",
        names=r"CONST_FILL",
        seen="sources give it as 4 * (n - 1) for dwords, as bytes - 1 for bytes",
    ),
    Bug(
        name="amd fence of another memory type",
        file="encode_sdma.py",
        old='        mtype = {"MTYPE": sdma.FENCE_MTYPE_UC} if',
        new='        mtype = {"MTYPE": 0} if',
        names=r"MTYPE",
        seen="signals that arrive late on RDNA",
    ),
    Bug(
        name="amd indirect packet that ends elsewhere",
        file="encode_sdma.py",
        old="            out.words += _PADDING[(-len(out.words) - sdma.Indirect.WORDS) % sdma.ALIGN_WORDS]",
        new="            out.words += _PADDING[-len(out.words) % sdma.ALIGN_WORDS]",
        names=r"INDIRECT",
        seen="the packet must end at a multiple of 8 dwords, not begin there",
    ),
    Bug(
        name="amd scalar cache not invalidated",
        file="packets.py",
        old="            GLK_INV=invalidate,",
        new="            GLK_INV=False,",
        names=r"GLK_INV|scalar cache",
        seen="old arguments and constants",
    ),
    Bug(
        name="amd instruction cache not invalidated",
        file="packets.py",
        old="            GLI_INV=GLI_INV_ALL if code else 0,",
        new="            GLI_INV=0,",
        names=r"GLI_INV|instruction cache",
        seen="code of a program that was there before",
    ),
    Bug(
        name="amd release that does not write the L2 back",
        file="packets.py",
        old='        caches = dict.fromkeys(("GL2_WB", "GL2_INV", "GLV_INV"), 1) | {"SEQ": Sequence.FORWARD}',
        new='        caches = dict.fromkeys(("GL2_INV", "GLV_INV"), 1) | {"SEQ": Sequence.FORWARD}',
        names=r"GL2_WB|written back|write.back",
        seen="copy engines and the host read what memory has",
    ),
    Bug(
        name="amd interrupt without a context",
        file="packets.py",
        old="slot_va >> 32, number, 0, number)",
        new="slot_va >> 32, number, 0, 0)",
        names=r"context 0|no event",
        seen="gfx12 firmware drops interrupts of context 0; sleeping hosts wait for their time limit",
    ),
    Bug(
        name="amd shared memory not given",
        file="launch.py",
        old="    second = second.replace(LDS_SIZE=-(-what.group_bytes // target.lds_granule))\n",
        new="",
        names=r"bytes of LDS",
        seen="the field of the descriptor is 0: the packet processor fills it in for AQL alone",
    ),
    Bug(
        name="amd wave of 64 lanes for code of 32",
        file="launch.py",
        old="FORCE_START_AT_000=True, CS_W32_EN=wave32)",
        new="FORCE_START_AT_000=True)",
        names=r"lanes",
        seen="the initiator, not the descriptor, tells PM4 launches",
    ),
    Bug(
        name="amd registers' start at the descriptor",
        file="launch.py",
        old="        code = what.entry_va >> PROGRAM_SHIFT",
        new="        code = what.descriptor_va >> PROGRAM_SHIFT",
        names=r"code|instruction|descriptor",
        seen="AQL packets name the descriptor, registers the code",
    ),
    Bug(
        name="aql doorbell one too far",
        file="aql_ring.py",
        old="        queue.ring_doorbell(put - 1)",
        new="        queue.ring_doorbell(put)",
        device="amd-emu:gfx942+checked",
        names=r"doorbell",
        seen="the doorbell of AQL queues is the last packet's index",
    ),
    Bug(
        name="aql shared memory not given",
        file="launch.py",
        old="        GROUP_SEGMENT_SIZE=what.group_bytes,",
        new="        GROUP_SEGMENT_SIZE=0,",
        device="amd-emu:gfx942+checked",
        names=r"group_segment_size 0",
        seen="the packet's size counts, not the descriptor's",
    ),
    Bug(
        name="aql kernel object that is the code",
        file="launch.py",
        old="        KERNEL_OBJECT=what.descriptor_va,",
        new="        KERNEL_OBJECT=what.entry_va,",
        device="amd-emu:gfx942+checked",
        names=r"descriptor|kernel object|KERNEL_OBJECT",
        seen="the other way round than for registers",
    ),
    Bug(
        name="aql kernels without a barrier bit",
        file="launch.py",
        old="        BARRIER=barrier,\n        ACQUIRE_SCOPE",
        new="        BARRIER=False,\n        ACQUIRE_SCOPE",
        device="amd-emu:gfx942+checked",
        names=r"race|before|order",
        seen="packets of one AQL queue overlap without it",
    ),
)
"""Grouped by rings, queues, order, copies, caches, launches, memory and AQL."""

CATALOG: Final = Catalog(
    folder="amd",
    device="amd-emu:checked",
    program=Path(__file__).with_name("program.py"),
    bugs=BUGS,
)
