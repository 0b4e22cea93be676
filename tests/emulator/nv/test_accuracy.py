"""The report of PTX instructions that are not exact: bounds by name."""

from __future__ import annotations

from emulator.nv.ptx import accuracy
from emulator.nv.ptx.flat import Flat, flatten
from emulator.nv.ptx.syntax import parse

COMPUTED = "rcp.approx.f32 %f2, %f1;"
STORED = "st.global.f32 [%rd1], %f2;"


def kernel(*body: str) -> Flat:
    text = "\n".join(body)
    source = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{{
.reg .f32 %f<8>;
.reg .b32 %r<8>;
.reg .b64 %rd<8>;
.reg .pred %p<4>;
ld.param.u64 %rd1, [p];
ld.global.f32 %f1, [%rd1];
{text}
ret;
}}
"""
    return flatten(parse(source), "k")


def test_instructions_are_counted_by_their_bound() -> None:
    others = "ex2.approx.ftz.f32 %f3, %f2;", "div.rn.f32 %f2, %f3, %f1;"
    found = accuracy.counts(kernel(COMPUTED, *others, STORED))
    assert set(found["1 ulp"]) == {"rcp.approx.f32"}
    assert set(found["2 ulp"]) == {"ex2.approx.ftz.f32"}
    assert {"div.rn.f32", "ld.global.f32", "st.global.f32"} <= set(found["exact"])
