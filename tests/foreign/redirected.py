"""tinygrad's drivers in this process, with the files of GPUs on an emulated kernel.

tinygrad has no way to be given another kernel, so names of its modules are replaced here: where it opens,
maps and calls device files (`FileIOInterface`), where it stores to doorbells (`MMIOInterface`), its store
fence, and the compilers of its renderers, which are LLVM as llvmlite brings it and nvJitLink. No argument,
packet or reply is changed.

Not here: the cases (`cases`). One process runs one device: tinygrad keeps what it has opened in classes.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from compiler.llvm import Machine, emit_object
from compiler.targets.nvptx.assembler import assemble
from emulator.shared.device_files import DeviceFiles
from tools.arguments import library

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.shared.device_files import Registers

_CURE: Final = "python -m pip install 'tinygrad>=0.14,<0.15'"
_LEVEL: Final = 2


def tinygrad(name: str = "tinygrad") -> Any:
    """Return a module of tinygrad. Raises `UnsupportedError` where it is not installed."""
    return library(name, cure=_CURE)


def prepare(vendor: str, settings: dict[str, str]) -> None:
    """Set what tinygrad reads of the environment when it is imported: device, settings, no kept kernels."""
    if "tinygrad" in sys.modules:
        raise RuntimeError("tinygrad was imported before its settings were made")
    device = {"nv": "NVK+NV:PTX", "amd": "KFD+AMD:LLVM"}[vendor]
    os.environ.update({"DEV": device, "CACHELEVEL": "0", "CCACHE": "0", "PARALLEL": "0"}, **settings)


def redirect(vendor: str, kernel: Any) -> DeviceFiles:
    """Let tinygrad's driver of a vendor ("nv", "amd") use an emulated kernel; return the way there.

    tinygrad uploads the sections of a cubin, not the file, and nv-emu executes the file's PTX: each cubin is
    made known to it when it is assembled.
    """
    files = DeviceFiles(kernel)
    shared = tinygrad("tinygrad.runtime.support.hcq")
    shared.FileIOInterface = _file_interface(files)
    memory = shared.MMIOInterface

    def view(addr: int, nbytes: int, fmt: str = "B") -> Any:
        found = files.registers(addr)
        return memory(addr, nbytes, fmt) if found is None else _RegisterView(found, fmt)

    ops = tinygrad(f"tinygrad.runtime.ops_{vendor}")
    ops.MMIOInterface = view
    system = tinygrad("tinygrad.runtime.support.system").System
    system.memory_barrier = files.fence
    base = tinygrad("tinygrad.device").Compiler
    if vendor == "amd":
        tinygrad("tinygrad.runtime.support.compiler_llvm").AMDLLVMCompiler = _compiler(base, _amd_object)
    else:
        compilers = tinygrad("tinygrad.runtime.support.compiler_cuda")
        ptx = compilers.PTXCompiler.compile

        def cubin(text: str, arch: str) -> bytes:
            made = assemble(_ptx(ptx, text, arch), arch)
            kernel.machine.images.learn(made)
            return made

        compilers.NVPTXCompiler = _compiler(base, cubin)
    return files


class _RegisterView:
    """Stores to a page of registers, each of the width of its format, as tinygrad's view of memory."""

    def __init__(self, registers: Registers, fmt: str) -> None:
        self._registers, self.fmt = registers, fmt

    def __getitem__(self, index: int) -> int:
        mmio, at = self._registers.mmio, self._at(index)
        return mmio.read64(at) if self.fmt == "Q" else mmio.read32(at)

    def __setitem__(self, index: int, value: int) -> None:
        mmio, at = self._registers.mmio, self._at(index)
        if self.fmt == "Q":
            mmio.write64(at, value)
        else:
            mmio.write32(at, value)

    def _at(self, index: int) -> int:
        if self.fmt not in ("I", "Q"):
            raise TypeError(f"registers are accessed as I or Q, seen {self.fmt!r}")
        return self._registers.at + index * (8 if self.fmt == "Q" else 4)


def _file_interface(files: DeviceFiles) -> type:
    """Return the class that stands for tinygrad's `FileIOInterface`; its methods are those of tinygrad."""

    class Files:
        def __init__(self, path: str = "", flags: int = os.O_RDONLY, fd: int | None = None) -> None:
            self.path = path
            self.fd = fd
            try:
                files.list_dir(path)
            except OSError:
                self.fd = fd or files.open(path, flags)

        def __del__(self) -> None:
            if self.fd is not None and not sys.is_finalizing():
                files.close(self.fd)

        def ioctl(self, request: int, arg: Any) -> int:
            return files.ioctl(self._number(), request, ctypes.addressof(arg))

        def mmap(self, start: int, sz: int, prot: int, flags: int, offset: int) -> int:
            return files.mmap(start or 0, sz, prot, flags, self._number(), offset)

        def read(self, size: int | None = None, binary: bool = False, offset: int | None = None) -> Any:  # noqa: FBT001, FBT002 - tinygrad's signature
            if size is not None or offset is not None:
                raise NotImplementedError("reads of a part of a file: tinygrad's drivers read whole ones")
            data = files.read(self._number(), 1 << 20)
            return data if binary else data.decode()

        def listdir(self) -> list[str]:
            return files.list_dir(self.path)

        def _number(self) -> int:
            if self.fd is None:
                raise IsADirectoryError(self.path)
            return self.fd

        @staticmethod
        def anon_mmap(start: int, sz: int, prot: int, flags: int, offset: int) -> int:
            return files.mmap(start or 0, sz, prot, flags, -1, offset)

        @staticmethod
        def munmap(buf: int, sz: int) -> None:
            files.munmap(buf, sz)

        @staticmethod
        def exists(path: str) -> bool:
            return os.path.exists(path)  # noqa: PTH110 - tinygrad gives text

    return Files


def _compiler(base: Any, function: Callable[[str, str], bytes]) -> type:
    """Return a compiler of tinygrad that makes an image of a text and an architecture by `function`."""

    def init(self: Any, arch: str) -> None:
        base.__init__(self, None)
        self.arch = arch

    def compile_text(self: Any, text: str) -> bytes:
        return function(text, self.arch)

    return type("Compiler", (base,), {"__init__": init, "compile": compile_text})


_ALLOCA: Final = re.compile(r"^( *)(%\S+) = alloca (.*)$", re.MULTILINE)


def _amd_object(text: str, arch: str) -> bytes:
    """Compile the text of tinygrad's renderer by LLVM as llvmlite brings it.

    The text is made for a module without a target, whose locals lie in address space 0; here they lie where
    AMD GPUs have them and are cast, which LLVM does too where the target comes later.
    """
    cast = r"\1\2.private = alloca \3, addrspace(5)\n\1\2 = addrspacecast ptr addrspace(5) \2.private to ptr"
    machine = Machine("amdgcn-amd-amdhsa", arch, "+cumode")
    return emit_object(_ALLOCA.sub(cast, text), machine, level=_LEVEL)


def _ptx(compile_text: Callable[[Any, str], bytes], text: str, arch: str) -> str:
    """Return the PTX that tinygrad hands to nvJitLink: its renderer's text with version and target."""
    return compile_text(SimpleNamespace(arch=arch), text).decode()
