"""Linking generated code into a process with a fragmented address space."""

from __future__ import annotations

import subprocess
import sys

from tests.limits import CHILD_S

_CODE_IN_A_SMALL_HOLE = """
import ctypes, mmap
from emulator.ir import jit
from drivers.kernel import MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, LinuxKernel

ENTRIES, FAR = 64, 1 << 33
table = ", ".join(f"i32 {i * i}" for i in range(ENTRIES))
text = f'''
@squares = internal constant [{ENTRIES} x i32] [{table}]
define i32 @square(i32 %i) {{
  %at = getelementptr [{ENTRIES} x i32], ptr @squares, i32 0, i32 %i
  %value = load i32, ptr %at
  ret i32 %value
}}
'''
code = jit.compile_ir(text, jit.host(), optimise=True)
jit.load(code, ["square"], {})
linux = LinuxKernel()

def taken(size):
    return linux.mmap(size, prot=PROT_NONE, flags=MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE).va

wide = taken(FAR)
while taken(mmap.PAGESIZE) > wide:
    pass
linux.munmap(wide + FAR // 2, mmap.PAGESIZE)
loaded = jit.load(code, ["square"], {})
square = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(loaded.addresses["square"])
print([square(i) for i in range(ENTRIES)] == [i * i for i in range(ENTRIES)])
"""
"""One free page with gigabytes of reserved addresses around it: room for code, and none near it for data."""


def test_code_and_its_constants_lie_near_each_other_however_little_room_is_free():
    done = subprocess.run(
        [sys.executable, "-c", _CODE_IN_A_SMALL_HOLE],
        capture_output=True,
        text=True,
        check=False,
        timeout=CHILD_S,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["True"]), done.stderr
