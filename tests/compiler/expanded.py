"""Runs the text of an expansion as host code, with a start value moved by units in the last place."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from compiler import llvm
from tests.compiler.host_kernel import HostKernel

if TYPE_CHECKING:
    from compiler.targets.nvptx.expansion import Expansion

TYPES = {"float32": "float", "float64": "double", "uint64": "i64", "int64": "i64"}
STARTS = {"rcp": "fdiv double 1.0, %d", "rsqrt": "fdiv double 1.0, %root"}
_START = """
@offset = internal global i32 0
declare double @llvm.sqrt.f64(double)
declare float @llvm.copysign.f32(float, float)
declare float @llvm.fabs.f32(float)
define internal float @start.{name}(float %v) alwaysinline {{
  %size = call float @llvm.fabs.f32(float %v)
  %low = fcmp olt float %size, 0x3810000000000000
  %zero = call float @llvm.copysign.f32(float 0.0, float %v)
  %in = select i1 %low, float %zero, float %v
  %d = fpext float %in to double
  %root = call double @llvm.sqrt.f64(double %d)
  %best = {formula}
  %near = fptrunc double %best to float
  %bits = bitcast float %near to i32
  %exponent = and i32 %bits, 2139095040
  %less = sub i32 %exponent, 8388608
  %ordinary = icmp ult i32 %less, 2130706432
  %none = icmp eq i32 %exponent, 0
  %gone = and i32 %bits, -2147483648
  %kept = select i1 %none, i32 %gone, i32 %bits
  %off = load i32, ptr @offset
  %moved = add i32 %bits, %off
  %chosen = select i1 %ordinary, i32 %moved, i32 %kept
  %result = bitcast i32 %chosen to float
  ret float %result
}}
"""
_LOOP = """
define void @run(i64 %args, i64 %gx, i64 %gy, i64 %gz) #0 {{
entry:
  %block = inttoptr i64 %args to ptr
  %px = load ptr, ptr %block
  %at1 = getelementptr i64, ptr %block, i64 1
  %py = load ptr, ptr %at1
  %at2 = getelementptr i64, ptr %block, i64 2
  %out = load ptr, ptr %at2
  %at3 = getelementptr i64, ptr %block, i64 3
  %count = load i64, ptr %at3
  %at4 = getelementptr i64, ptr %block, i64 4
  %shift = load i32, ptr %at4
  store i32 %shift, ptr @offset
  br label %round
round:
  %i = phi i64 [ 0, %entry ], [ %next, %{end} ]
  %p = getelementptr {type}, ptr %px, i64 %i
  %left = load {type}, ptr %p
  %q = getelementptr {type}, ptr %py, i64 %i
  %right = load {type}, ptr %q
{body}
  %r = getelementptr {type}, ptr %out, i64 %i
  store {type} %value, ptr %r
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %round, label %stop
stop:
  ret void
}}
attributes #0 = {{ nounwind }}
"""


@functools.cache
def _kernel(expansion: Expansion, dtype: str) -> HostKernel:
    kind = "rsqrt" if "rsqrt" in expansion.text else "rcp"
    body = expansion.written("e.", {"x": "%left", "y": "%right", "result": "%value"}, "round")
    body = body.replace(f"@llvm.nvvm.{kind}.approx.ftz.f(", f"@start.{kind}(")
    end = f"e.{expansion.ends}" if expansion.ends else "round"
    start = _START.format(name=kind, formula=STARTS[kind])
    declared = [d for d in expansion.declared if "nvvm" not in d]
    ir = start + "\n".join(declared) + _LOOP.format(type=TYPES[dtype], body=body, end=end)
    return HostKernel(llvm.emit_object(ir, llvm.host(), level=2), "run")


def run(expansion: Expansion, x: np.ndarray, y: np.ndarray | None = None, *, offset: int = 0) -> np.ndarray:
    """Return the expansion's value for each element; the start value is `offset` units from the nearest."""
    x = np.ascontiguousarray(x)
    y = x if y is None else np.ascontiguousarray(y)
    assert x.shape == y.shape
    assert x.dtype == y.dtype
    out = np.empty_like(x)
    kernel = _kernel(expansion, x.dtype.name)
    kernel.run([x.ctypes.data, y.ctypes.data, out.ctypes.data], [x.size, offset & 0xFFFFFFFF])
    return out
