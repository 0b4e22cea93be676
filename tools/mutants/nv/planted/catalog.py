"""The bugs planted in the NVIDIA driver: the edit of each, and the pattern that a report must match.

`old` occurs exactly once in its file, which a test checks. `names` is a regular expression that the message
to the user must match, ignoring case. It describes the mistake itself (the fence, the register count, the
field of the descriptor); the mention of a fault is not enough.

The bugs were chosen from the driver's source and public bug trackers, without reading the emulator.

Not here: applying an edit (`tools.mutants.planted.run`), the program (`program`).
"""

# ruff: noqa: E501 - lines of the driver's source are quoted unchanged

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.mutants.planted.bug import Bug, Catalog

BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        name="no fence between ring entry and put index",
        file="channel.py",
        old="        fence()\n        self.userd[self.put_index] = put",
        new="        self.userd[self.put_index] = put",
        names=r"fence|write-combin",
        seen="write-combined ring memory: every user-space submitter has this fence",
        known=True,
    ),
    Bug(
        name="no fence between put index and doorbell",
        file="channel.py",
        old="        self.userd[self.put_index] = put\n        fence()",
        new="        self.userd[self.put_index] = put",
        names=r"fence|write-combin",
        seen="the same, before the doorbell",
        known=True,
    ),
    Bug(
        name="doorbell before the put index",
        file="channel.py",
        old="        self.userd[self.put_index] = put\n        fence()\n        self._write(_DOORBELL, self.token)",
        new="        self._write(_DOORBELL, self.token)\n        self.userd[self.put_index] = put\n        fence()",
        names=r"doorbell|bell|put index|GPPut|fence",
        seen="the last submission is not executed until the next doorbell",
    ),
    Bug(
        name="token without its enable bit",
        file="channel.py",
        old="self.token = reply.workSubmitToken",
        new="self.token = reply.workSubmitToken & 0x3FFF_FFFF",
        device="nv-emu:sm_120",
        names=r"token",
        seen="RUNLIST_DOORBELL_ENABLE of GB20x: tokens rebuilt from channel and run list lack it",
        known=True,
    ),
    Bug(
        name="channel group never scheduled",
        file="channel.py",
        old="rm.control(self.group, Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, layout(bEnable=True))",
        new="assert layout",
        names=r"schedul",
        seen="tinygrad issue 6089: time-out at the first submission of a bring-up",
    ),
    Bug(
        name="put index not taken modulo the ring",
        file="ring.py",
        old="self.channel.ring_doorbell((put + 1) % size)",
        new="self.channel.ring(put + 1)",
        names=r"put|entries",
        seen="works for the first 4,096 submissions",
    ),
    Bug(
        name="segment one word short",
        file="ring.py",
        old="entries[put % size] = entry0 + 4 * (at + start) + (count - start) * _ONE_WORD",
        new="entries[put % size] = entry0 + 4 * (at + start) + (count - start - 1) * _ONE_WORD",
        names=r"method|header|segment|truncat|data word|words",
        seen="length fields that count from zero in other engines",
    ),
    Bug(
        name="equality acquire",
        file="push.py",
        old="ACQUIRE: Final = int(\n    SemExecute(OPERATION=SemOperation.ACQ_CIRC_GEQ, ",
        new="ACQUIRE: Final = int(\n    SemExecute(OPERATION=SemOperation.ACQUIRE, ",
        names=r"equal|passed|exceed",
        seen="a wait misses a signal that is set twice before the wait is reached",
        known=True,
    ),
    Bug(
        name="release without waiting for the engine",
        file="push.py",
        old="RELEASE_WFI: Final = int(SemExecute(OPERATION=SemOperation.RELEASE, RELEASE_WFI=True, PAYLOAD_SIZE=True))",
        new="RELEASE_WFI: Final = int(SemExecute(OPERATION=SemOperation.RELEASE, PAYLOAD_SIZE=True))",
        names=r"race|wfi|wait for idle|still runn|not (?:been )?(?:done|finished|ordered)",
        seen="a signal set while kernels run: the host reads memory that is not written yet",
    ),
    Bug(
        name="barrier that emits nothing",
        file="encode.py",
        old="            self._held = True\n",
        new="            pass\n",
        names=r"race|wait_for_idle|barrier",
        seen="grids of one channel overlap: dependent kernels need a wait between them",
    ),
    Bug(
        name="dependent launch behind one of two kernels",
        file="encode.py",
        old=" if alone else None",
        new="",
        names=r"race|overlap|barrier|wait for idle",
        seen="a descriptor starts one other: behind several kernels a barrier must wait for all",
    ),
    Bug(
        name="copy signal without flush",
        file="push.py",
        old="        DATA_TRANSFER_TYPE=DataTransferType.NONE,\n        FLUSH_ENABLE=True,\n"
        "        SEMAPHORE_TYPE=DmaSemaphoreType.RELEASE_ONE_WORD,",
        new="        DATA_TRANSFER_TYPE=DataTransferType.NONE,\n"
        "        SEMAPHORE_TYPE=DmaSemaphoreType.RELEASE_ONE_WORD,",
        names=r"flush|not (?:yet )?visible|race",
        seen="LAUNCH_DMA without FLUSH_ENABLE: the semaphore is visible before the data",
    ),
    Bug(
        name="four-word release into the slot of a signal",
        file="push.py",
        old="        FLUSH_ENABLE=True,\n        SEMAPHORE_TYPE=DmaSemaphoreType.RELEASE_ONE_WORD,\n    )\n)\nLAUNCH_TIME",
        new="        FLUSH_ENABLE=True,\n        SEMAPHORE_TYPE=DmaSemaphoreType.RELEASE_FOUR_WORD,\n    )\n)\nLAUNCH_TIME",
        names=r"four.?word|16 bytes|overwr|timestamp|high word|align",
        seen="tinygrad pull request 16369: a release of 16 bytes into a slot of 8",
    ),
    Bug(
        name="copies pipelined",
        file="push.py",
        old="    DATA_TRANSFER_TYPE=DataTransferType.NON_PIPELINED, ",
        new="    DATA_TRANSFER_TYPE=DataTransferType.PIPELINED, ",
        names=r"pipelin|race|overlap",
        seen="a copy that reads the memory of the previous fill",
    ),
    Bug(
        name="length of a fill in bytes",
        file="push.py",
        old="_COPY_LENGTH, piece >> 2, _COPY_LAUNCH, LAUNCH_FILL",
        new="_COPY_LENGTH, piece, _COPY_LAUNCH, LAUNCH_FILL",
        names=r"beyond|outside|out of bounds|past the end|bytes below|not mapped|page fault|PDE|PTE",
        seen="LINE_LENGTH_IN counts elements once remapping is on",
    ),
    Bug(
        name="halves of a copy's address swapped",
        file="push.py",
        old="words += (_COPY_OFFSETS, src >> 32, src & _LOW, dst >> 32, dst & _LOW)",
        new="words += (_COPY_OFFSETS, src & _LOW, src >> 32, dst & _LOW, dst >> 32)",
        names=r"OFFSET_(?:IN|OUT)_UPPER|not mapped",
        seen="copy classes take the upper half first, host semaphores the lower",
    ),
    Bug(
        name="no copy object on its subchannel",
        file="push.py",
        old="    return (header(COPY, DmaMethod.SET_OBJECT, 1), int(SetObject(CLASS=gpu.copy_class)))",
        new="    return ()",
        names=r"subchannel|SET_OBJECT|object",
        seen="every new channel needs this method",
    ),
    Bug(
        name="no shared-memory window",
        file="push.py",
        old="        header(COMPUTE, method.SET_SHADER_SHARED_MEMORY_WINDOW_A, 2),\n"
        "        shared >> 32,\n        shared & _LOW,\n",
        new="",
        names=r"shared.{0,20}window|window.{0,20}shared",
        seen="only generic addresses of shared memory use the window",
    ),
    Bug(
        name="windows differ between method and constant bank",
        file="program.py",
        old='            "local_window": self._windows[1],',
        new='            "local_window": self._windows[1] >> 1,',
        names=r"local.{0,20}window|window.{0,20}local|local_window",
        seen="the number is stored in two places",
    ),
    Bug(
        name="constant bank not invalidated",
        file="qmd.py",
        old='            "CONSTANT_BUFFER_INVALIDATE": (True,),',
        new='            "CONSTANT_BUFFER_INVALIDATE": (False,),',
        names=r"CONSTANT_BUFFER_INVALIDATE|constant.{0,40}(?:cache|stale|invalid)|stale",
        seen="arguments of an earlier launch at the same address",
    ),
    Bug(
        name="grid height and depth swapped",
        file="qmd.py",
        old='    "V04": Dialect(\n        ("GRID_WIDTH", "GRID_HEIGHT", "GRID_DEPTH"),',
        new='    "V04": Dialect(\n        ("GRID_WIDTH", "GRID_DEPTH", "GRID_HEIGHT"),',
        names=r"nctaid|grid",
        seen="correct for every launch whose height and depth are equal",
        known=True,
    ),
    Bug(
        name="register count of the kernel alone",
        file="cubin.py",
        old="registers=max(values.get(InfoAttribute.REGCOUNT, {}).values(), default=0),",
        new="registers=min(values.get(InfoAttribute.REGCOUNT, {}).values(), default=0) - 2,",
        names=r"regist",
        seen="linked functions, or the two registers that the count does not include",
    ),
    Bug(
        name="no barriers in the descriptor",
        file="qmd.py",
        old='            "BARRIER_COUNT": kernel.barriers,',
        new='            "BARRIER_COUNT": 0,',
        names=r"barrier",
        seen="kernels without bar.sync work",
    ),
    Bug(
        name="shared memory without the system's reserve",
        file="program.py",
        old="        reserve = 0 if kernel.sm >= FIRST_SM_WITH_RESERVE else RESERVED_SHARED\n",
        new="        reserve = 0\n",
        device="nv-emu:sm_80",
        names=r"shared",
        seen="tinygrad pull request 7239: SHARED_MEMORY_SIZE was too small",
    ),
    Bug(
        name="local memory a multiprocessor, not a TPC",
        file="slm.py",
        old="    tpc = _up(warp * gpu.max_warps * gpu.sms_per_tpc, LOCAL_TPC_ALIGN)",
        new="    tpc = _up(warp * gpu.max_warps, LOCAL_TPC_ALIGN)",
        names=r"local memory|per.?TPC|SHADER_LOCAL_MEMORY|slm",
        seen="tinygrad pull request 7307: local memory by device",
    ),
    Bug(
        name="local memory for the TPCs that are left",
        file="slm.py",
        old="    return tpc, _up(tpc * gpu.litter_tpcs, LOCAL_TOTAL_ALIGN)",
        new="    return tpc, _up(tpc * (gpu.sms // gpu.sms_per_tpc), LOCAL_TOTAL_ALIGN)",
        names=r"local memory|TPC|SHADER_LOCAL_MEMORY|slm",
        seen="disabled units leave gaps in the numbering",
    ),
    Bug(
        name="channel without the new local memory",
        file="device.py",
        old="                words += self._local.words(all_sms=self.choices.all_sms)",
        new="                words += ()",
        names=r"local memory|SHADER_LOCAL_MEMORY|slm",
        seen="a kernel that needs more than all kernels before it",
    ),
    Bug(
        name="instruction cache kept over a load",
        file="device.py",
        old="                words += push.new_code()",
        new="                words += ()",
        names=r"instruction cache|INVALIDATE_SHADER_CACHES|stale|other code",
        seen="code uploaded to the address of other code",
    ),
    Bug(
        name="entry of another section",
        file="program.py",
        old="            program=memory.va + kernel.code,",
        new="            program=memory.va,",
        names=r"program|entry|code",
        seen="an ELF header where the first instruction should be",
    ),
    Bug(
        name="parameters at the offset of the generation before",
        file="program.py",
        old="        first = self.bank_at + self._bank0.SIZE",
        new="        first = self.bank_at + 0x160",
        names=r"constant|bank|parameter|uninitiali",
        seen="0x160 until Ada, 0x210 on Hopper, 0x380 on Blackwell",
    ),
    Bug(
        name="compute channel not registered",
        file="channel.py",
        old="        context.space.register_channel(self.handle, base, size)\n"
        "        stack.callback(context.space.unregister_channel, self.handle)",
        new="        assert base + size >= 0",
        names=r"regist|context buffer",
        seen="UVM owns the address space: only this call maps context buffers",
    ),
    Bug(
        name="context window of one megabyte",
        file="channel.py",
        old="            size = choices.context_window << 20",
        new="            size = 1 << 20",
        names=r"window|context buffer",
        seen="UVM_REGISTER_CHANNEL refuses a window that is too small for all buffers",
    ),
    Bug(
        name="read-only mappings",
        file="uvm.py",
        old="kind = UvmGpuMappingType.READ_ONLY if read_only else UvmGpuMappingType.READ_WRITE_ATOMIC",
        new="kind = UvmGpuMappingType.READ_ONLY",
        names=r"read.?only|permission|write",
        seen="an enumeration with another first member",
    ),
    Bug(
        name="copies on the compute queue not awaited",
        file="encode.py",
        old="            out.words += push.graphics_copy_end(out.place((0,), align=8))",
        new="            pass",
        names=r"race|copy",
        seen="the graphics copy engine runs asynchronously",
    ),
    Bug(
        name="stamps without time",
        file="push.py",
        old="    SemExecute(OPERATION=SemOperation.RELEASE, RELEASE_WFI=True, PAYLOAD_SIZE=True, RELEASE_TIMESTAMP=True)",
        new="    SemExecute(OPERATION=SemOperation.RELEASE, RELEASE_WFI=True, PAYLOAD_SIZE=True)",
        names=r"timestamp|time",
        seen="a release without a timestamp",
        known=True,
    ),
    Bug(
        name="memory freed while it is mapped",
        file="memory.py",
        old="                if memory.handle:\n                    stack.callback(self._uvm.unmap, memory.va, memory.size)",
        new="                pass",
        names=r"mapp|unmap|range",
        seen="teardown in the wrong order: the range is mapped longer than its memory exists",
    ),
)
"""Grouped by submission, order, copies, launches, memory and teardown."""

CATALOG: Final = Catalog(
    folder="nv",
    device="nv-emu:checked",
    program=Path(__file__).with_name("program.py"),
    bugs=BUGS,
)
