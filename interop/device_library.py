"""Definitions of `vprintf` and `__assertfail` in PTX, which are added to a module before it is assembled.

Code that calls `printf` or `assert` declares two external functions, which libcuda defines at load time. The
definitions here write to an output ring in host memory (`interop.output`). The address of the ring is a
constant in their text. They are placed after the kernels, so that the line numbers of kernels stay.

Source: CUDA C++ programming guide, formatted output and assertions; PTX ISA 8.8. Not here: conversions
(`interop.printf`). Next: `interop.output`, which reads the ring.
"""

from __future__ import annotations

import re
from typing import Final

from hcq.errors import UnsupportedError

HEAD_BYTES: Final = 1024
"""Bytes of the ring before its first record."""
USED, LOST, FAILED, FAILURE = 0, 8, 16, 64
"""Offsets in the ring: bytes reserved for records (u64); number of calls without a record (u32); state of
assertions (u32: 0 none failed, 1 one failed, `COMPLETE` its description is written); the description."""
COMPLETE: Final = 2
"""State of assertions: the description of the first failure is complete."""
FAILURE_TEXTS: Final = ((28, 320), (348, 320), (668, 288))
"""(offset in the description, most bytes) of message, file and function, each ended by a zero byte. Before
them the description has line, block x, y, z and thread x, y, z, each u32."""
RECORD_HEAD: Final = 24
"""Bytes of the head of a record: u32 each, bytes of the record, 1 if it is complete, bytes of format, of
arguments and of strings, and padding. Format, arguments and strings follow, each padded to 8 bytes."""

_PRINT: Final = "vprintf"
_ASSERT: Final = "__assertfail"
_DECLARED: Final = re.compile(
    r"\.extern\s+\.func\s*(?P<result>\([^)]*\))?\s*(?P<name>vprintf|__assertfail)\b\s*"
    r"(?P<rest>\([^)]*\)\s*(?:\.noreturn)?\s*);"
)
_REFUSED: Final = re.compile(r"\.extern\s+\.func\s*(?:\([^)]*\))?\s*(malloc|free)\b")
_LETTERS: Final = {"length": "lLjztq", "integers": "diuxXoc", "wide": "fFeEgGaAps"}
"""Characters after a percent sign: length modifiers of 8-byte integers, conversions of integers, and
conversions whose arguments always have 8 bytes."""
_SECTION: Final = re.compile(r"^[ \t]*\.section\b", re.MULTILINE)


def wanted(text: str) -> bool:
    """Return whether PTX calls `printf` or has assertions."""
    return _DECLARED.search(text) is not None


def refuse_heap(text: str) -> None:
    """Raise `UnsupportedError` for PTX that allocates memory in the kernel."""
    if found := _REFUSED.search(text):
        raise UnsupportedError(
            f"the kernel calls {found[1]!r}, which libcuda defines; a heap in device code is not supported\n"
            "hint: pass memory to the kernel as an argument"
        )


def with_library(text: str, ring: int, ring_bytes: int) -> str:
    """Return PTX with definitions of the functions that it declares, for an output ring at address `ring`.

    `ring_bytes` is the size of the ring. Lines of the kernels keep their numbers.
    """
    constants = {"ring": ring, "room": ring_bytes - HEAD_BYTES, "records": ring + HEAD_BYTES}
    constants |= {name: sum(1 << ord(one) - 64 for one in letters) for name, letters in _LETTERS.items()}
    added = []
    for found in _DECLARED.finditer(text):
        head = f".func {found['result'] or ''} {_own(found['name'])} {found['rest']}"
        names = re.findall(r"[\w$]+(?=\s*[,)])", found["rest"])
        result = re.findall(r"[\w$]+(?=\s*\))", found["result"] or "")
        body = _VPRINTF if found["name"] == _PRINT else _ASSERTFAIL
        for name, value in constants.items():
            body = body.replace(f"${name}$", str(value))
        for number, name in enumerate((*names, *result)):
            body = body.replace(f"$param{number}$", name)
        added.append(f"{head}\n{body}")
    own = _DECLARED.sub(lambda found: found[0].replace(".extern", "", 1), text)
    own = re.sub(rf"\b({_PRINT}|{_ASSERT})\b", lambda found: _own(found[1]), own)
    at = section.start() if (section := _SECTION.search(own)) else len(own)
    return own[:at] + ("" if own[:at].endswith("\n") else "\n") + "".join(added) + own[at:]


def _own(name: str) -> str:
    return f"hcq_{name.strip('_')}"


_VPRINTF: Final = """{
 .reg .pred %p<8>;
 .reg .b32 %r<12>;
 .reg .b64 %rd<32>;
 activemask.b32 %r8;
 ld.param.b64 %rd1, [$param0$];
 ld.param.b64 %rd2, [$param1$];
 mov.b64 %rd3, $ring$;
 mov.b64 %rd10, 0;
 mov.b64 %rd11, 0;
 mov.b64 %rd12, 0;
 setp.ne.b32 %p7, 0, 0;
again:
 mov.b64 %rd4, 0;
 mov.b64 %rd5, 0;
 mov.b64 %rd6, 0;
 mov.b32 %r5, 0;
text:
 add.u64 %rd7, %rd1, %rd4;
 ld.u8 %r1, [%rd7];
 add.u64 %rd8, %rd10, %rd4;
 @%p7 st.global.u8 [%rd8], %r1;
 add.u64 %rd4, %rd4, 1;
 setp.eq.u32 %p1, %r1, 0;
 @%p1 bra end;
 setp.ne.u32 %p1, %r1, 37;
 @%p1 bra text;
 mov.b32 %r2, 4;
spec:
 add.u64 %rd7, %rd1, %rd4;
 ld.u8 %r1, [%rd7];
 add.u64 %rd8, %rd10, %rd4;
 @%p7 st.global.u8 [%rd8], %r1;
 add.u64 %rd4, %rd4, 1;
 setp.eq.u32 %p1, %r1, 0;
 @%p1 bra end;
 mov.b32 %r4, 4;
 setp.eq.u32 %p2, %r1, 42;
 @%p2 bra take;
 setp.eq.u32 %p1, %r1, 37;
 @%p1 bra text;
 setp.lt.u32 %p1, %r1, 64;
 @%p1 bra spec;
 setp.gt.u32 %p1, %r1, 127;
 @%p1 bra text;
 setp.eq.u32 %p1, %r1, 104;
 @%p1 bra spec;
 sub.u32 %r3, %r1, 64;
 mov.b64 %rd9, $length$;
 shr.u64 %rd9, %rd9, %r3;
 and.b64 %rd9, %rd9, 1;
 setp.eq.u64 %p1, %rd9, 0;
 @%p1 bra conversion;
 mov.b32 %r2, 8;
 bra spec;
conversion:
 mov.b32 %r4, %r2;
 mov.b64 %rd9, $integers$;
 shr.u64 %rd9, %rd9, %r3;
 and.b64 %rd9, %rd9, 1;
 setp.ne.u64 %p1, %rd9, 0;
 @%p1 bra take;
 mov.b32 %r4, 8;
 mov.b64 %rd9, $wide$;
 shr.u64 %rd9, %rd9, %r3;
 and.b64 %rd9, %rd9, 1;
 setp.eq.u64 %p1, %rd9, 0;
 @%p1 bra text;
take:
 add.u32 %r5, %r5, 1;
 setp.eq.u32 %p1, %r4, 8;
 @%p1 bra eight;
 add.u64 %rd7, %rd2, %rd5;
 ld.u32 %r6, [%rd7];
 add.u64 %rd8, %rd11, %rd5;
 @%p7 st.global.u32 [%rd8], %r6;
 add.u64 %rd5, %rd5, 4;
 @%p2 bra spec;
 bra text;
eight:
 add.u64 %rd5, %rd5, 7;
 and.b64 %rd5, %rd5, -8;
 add.u64 %rd7, %rd2, %rd5;
 ld.u64 %rd13, [%rd7];
 add.u64 %rd8, %rd11, %rd5;
 @%p7 st.global.u64 [%rd8], %rd13;
 add.u64 %rd5, %rd5, 8;
 setp.ne.u32 %p1, %r1, 115;
 @%p1 bra text;
 setp.eq.u64 %p1, %rd13, 0;
 @%p1 bra text;
string:
 ld.u8 %r6, [%rd13];
 add.u64 %rd13, %rd13, 1;
 add.u64 %rd8, %rd12, %rd6;
 @%p7 st.global.u8 [%rd8], %r6;
 add.u64 %rd6, %rd6, 1;
 setp.ne.u32 %p1, %r6, 0;
 @%p1 bra string;
 bra text;
end:
 @%p7 bra done;
 add.u64 %rd14, %rd4, 7;
 and.b64 %rd14, %rd14, -8;
 add.u64 %rd15, %rd5, 7;
 and.b64 %rd15, %rd15, -8;
 add.u64 %rd16, %rd6, 7;
 and.b64 %rd16, %rd16, -8;
 add.u64 %rd17, %rd14, %rd15;
 add.u64 %rd17, %rd17, %rd16;
 add.u64 %rd17, %rd17, 24;
 atom.global.add.u64 %rd18, [%rd3], %rd17;
 add.u64 %rd19, %rd18, %rd17;
 setp.gt.u64 %p1, %rd19, $room$;
 @%p1 bra lost;
 mov.b64 %rd20, $records$;
 add.u64 %rd20, %rd20, %rd18;
 cvt.u32.u64 %r7, %rd17;
 st.global.u32 [%rd20], %r7;
 cvt.u32.u64 %r7, %rd4;
 st.global.u32 [%rd20+8], %r7;
 cvt.u32.u64 %r7, %rd5;
 st.global.u32 [%rd20+12], %r7;
 cvt.u32.u64 %r7, %rd6;
 st.global.u32 [%rd20+16], %r7;
 add.u64 %rd10, %rd20, 24;
 add.u64 %rd11, %rd10, %rd14;
 add.u64 %rd12, %rd11, %rd15;
 setp.eq.b32 %p7, 0, 0;
 bra again;
lost:
 atom.global.add.u32 %r7, [%rd3+8], 1;
 bra out;
done:
 membar.sys;
 st.global.u32 [%rd20+4], 1;
out:
 bar.warp.sync %r8;
 st.param.b32 [$param2$], %r5;
 ret;
}
"""
"""`vprintf`. It passes over the format twice: the first pass counts bytes, then the record is reserved, and
the second pass writes it. %rd4, %rd5, %rd6: bytes of format, arguments and strings; %p7: whether this is the
second pass; %r2: bytes of an integer; %p2: whether the argument is a width or precision; %r8: the mask of
active threads at the call, which leave together."""


def _text_copied(parameter: int, label: str, place: tuple[int, int]) -> str:
    """Return code that copies a text, ended by a zero byte, to (offset, bytes) `place` of the description."""
    offset, most = place
    return f""" ld.param.b64 %rd2, [$param{parameter}$];
 add.u64 %rd3, %rd1, {FAILURE + offset};
 mov.b32 %r3, {most - 1};
{label}:
 ld.u8 %r2, [%rd2];
 st.global.u8 [%rd3], %r2;
 add.u64 %rd2, %rd2, 1;
 add.u64 %rd3, %rd3, 1;
 sub.u32 %r3, %r3, 1;
 setp.ne.u32 %p1, %r2, 0;
 setp.ne.and.u32 %p1, %r3, 0, %p1;
 @%p1 bra {label};
"""


_ASSERTFAIL: Final = (
    """{
 .reg .pred %p<3>;
 .reg .b32 %r<12>;
 .reg .b64 %rd<16>;
 mov.b64 %rd1, $ring$;
 atom.global.cas.b32 %r1, [%rd1+16], 0, 1;
 setp.ne.u32 %p1, %r1, 0;
 @%p1 bra second;
 ld.param.b32 %r2, [$param2$];
 st.global.u32 [%rd1+64], %r2;
 mov.u32 %r2, %ctaid.x;
 st.global.u32 [%rd1+68], %r2;
 mov.u32 %r2, %ctaid.y;
 st.global.u32 [%rd1+72], %r2;
 mov.u32 %r2, %ctaid.z;
 st.global.u32 [%rd1+76], %r2;
 mov.u32 %r2, %tid.x;
 st.global.u32 [%rd1+80], %r2;
 mov.u32 %r2, %tid.y;
 st.global.u32 [%rd1+84], %r2;
 mov.u32 %r2, %tid.z;
 st.global.u32 [%rd1+88], %r2;
"""
    + "".join(
        _text_copied(parameter, label, place)
        for (parameter, label), place in zip(
            ((0, "message"), (1, "file"), (3, "function")), FAILURE_TEXTS, strict=True
        )
    )
    + """ membar.sys;
 st.global.u32 [%rd1+16], 2;
 membar.sys;
 trap;
second:
 exit;
}
"""
)
"""`__assertfail`. The first thread that fails writes the description and traps. Other threads that fail only
exit, so that no trap ends the kernel before the description is complete."""
