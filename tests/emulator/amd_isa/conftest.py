"""Shared means: compile LLVM IR to machine code of an AMD GPU and run it on the SIMT engine."""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

import llvmlite.binding as llvm
import numpy as np
import pytest

from emulator.amd.isa import programs
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings, TranslatedProgram
from hcq.config import config

if TYPE_CHECKING:
    from emulator.simt.launch import LaunchResult
    from emulator.simt.work import LaunchOptions

Array = np.ndarray


@functools.cache
def compiled(ir: str, processor: str, features: str = "", opt: int = 2) -> bytes:
    """Return the object that LLVM makes of IR."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(
        cpu=processor, features=features, opt=opt
    )
    module = llvm.parse_assembly(ir)
    module.verify()
    return bytes(machine.emit_object(module))


class Bench:
    """An address space, arrays mapped into it, and kernels run on them."""

    def __init__(self, processor: str = "gfx1100", features: str = "") -> None:
        self.processor, self.features = processor, features
        self.memory = AddressSpace()
        self.settings = Settings(cache=config().cache)
        self._kept: list[object] = []

    def new(self, data: object, dtype: str) -> Array:
        """Return a mapped copy of some data."""
        array = np.ascontiguousarray(np.array(data, dtype))
        self._kept.append(array)
        self.memory.map(array.ctypes.data, array.nbytes)
        return array

    def kernel(self, ir: str, name: str = "k") -> tuple[TranslatedProgram, programs.KernelCode]:
        """Return a kernel of IR, translated."""
        found = programs.kernels(compiled(ir, self.processor, self.features), self.processor)[name]
        return programs.program(found, self.settings), found

    def run(
        self, ir: str, grid: int, block: int, *values: Array | int, options: LaunchOptions | None = None
    ) -> LaunchResult:
        """Run kernel `k`; arrays go in as pointers, ints as i32."""
        program, kernel = self.kernel(ir)
        return self.launch(program, kernel, grid, block, *values, options=options)

    def launch(
        self,
        program: TranslatedProgram,
        kernel: programs.KernelCode,
        grid: int,
        block: int,
        *values: Array | int,
        options: LaunchOptions | None = None,
    ) -> LaunchResult:
        """Run a translated kernel."""
        raw = b""
        for value in values:
            if isinstance(value, np.ndarray):
                raw = raw.ljust(-(-len(raw) // 8) * 8, b"\0") + struct.pack("<Q", value.ctypes.data)
            else:
                raw += struct.pack("<I", value & 0xFFFF_FFFF)
        raw = raw.ljust(-(-len(raw) // 8) * 8, b"\0")
        raw += struct.pack("<IIIHHHHHH", grid, 1, 1, block, 1, 1, 0, 0, 0)
        arguments = self.new(
            np.frombuffer(raw.ljust(max(kernel.kernarg_bytes, len(raw)) + 64, b"\0"), "u1"), "u1"
        )
        return programs.run(
            program, kernel, (grid, 1, 1), (block, 1, 1), arguments.ctypes.data, self.memory, options
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()
