"""Memory sizes of a kernel in a code object: LDS of a workgroup and private memory of a thread.

They are read from the kernel descriptor, whose symbol is the kernel's name with `.kd`. Source: LLVM's
AMDGPUUsage, "Kernel Descriptor".

Not here: registers, arguments and relocations (`drivers.amd.code`). Next: `target`, the caller.
"""

from __future__ import annotations

import struct

from hcq.errors import CompileError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_SIZES = struct.Struct("<II")
"""The first words of the descriptor: bytes of LDS of a workgroup, private bytes of a thread."""


def memory_of(code: bytes, name: str) -> tuple[int, int]:
    """Return (static bytes of LDS of a workgroup, private bytes of a thread) of the kernel `name`.

    `code` is an unlinked object from LLVM. Raises `CompileError` if it has no such kernel.
    """
    wanted = f"{name}.kd".encode() + b"\0"
    head = _HEADER.unpack_from(code)
    sections = [_SECTION.unpack_from(code, head[6] + k * _SECTION.size) for k in range(head[12])]
    for table in sections:
        if table[1] != _SYMTAB:
            continue
        names = sections[table[6]][4]
        for at in range(table[4], table[4] + table[5], _SYMBOL.size):
            text, _, _, section, value, _ = _SYMBOL.unpack_from(code, at)
            if code.startswith(wanted, names + text):
                group, private = _SIZES.unpack_from(code, sections[section][4] + value)
                return group, private
    raise CompileError(f"LLVM made no kernel descriptor of the name {name}.kd")
