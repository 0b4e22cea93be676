"""The conformance kernels for NVIDIA GPUs, as PTX: one thread a workgroup, data is u32."""

from __future__ import annotations

import functools

from compiler.targets.nvptx.assembler import assemble

_PARAMS = {
    "add": "u64 out, u64 a, u64 b",
    "copy": "u64 out, u64 a",
    "index": "u64 out, u32 width, u32 height, u32 base",
    "count": "u64 out",
    "affine": "u64 out, u32 factor, u32 term",
    "turn": "u64 out, u64 counter, u32 slot",
    "spin": "u64 out, u32 n",
}
_BODIES = {
    "add": """
 mov.u32 %r1, %ctaid.x;
 mul.wide.u32 %rd9, %r1, 4;
 add.u64 %rd2, %a, %rd9;
 add.u64 %rd3, %b, %rd9;
 add.u64 %rd4, %out, %rd9;
 ld.global.u32 %r2, [%rd2];
 ld.global.u32 %r3, [%rd3];
 add.u32 %r4, %r2, %r3;
 st.global.u32 [%rd4], %r4;
""",
    "copy": """
 mov.u32 %r1, %ctaid.x;
 mul.wide.u32 %rd9, %r1, 4;
 add.u64 %rd2, %a, %rd9;
 add.u64 %rd4, %out, %rd9;
 ld.global.u32 %r2, [%rd2];
 st.global.u32 [%rd4], %r2;
""",
    "index": """
 mov.u32 %r1, %ctaid.x;
 mov.u32 %r2, %ctaid.y;
 mov.u32 %r3, %ctaid.z;
 mad.lo.u32 %r4, %r3, %height, %r2;
 mad.lo.u32 %r4, %r4, %width, %r1;
 mul.wide.u32 %rd9, %r4, 4;
 add.u64 %rd4, %out, %rd9;
 ld.global.u32 %r5, [%rd4];
 add.u32 %r5, %r5, %base;
 add.u32 %r5, %r5, %r4;
 st.global.u32 [%rd4], %r5;
""",
    "count": """
 red.global.add.u32 [%out], 1;
""",
    "affine": """
 ld.global.u32 %r1, [%out];
 mad.lo.u32 %r2, %r1, %factor, %term;
 st.global.u32 [%out], %r2;
""",
    "turn": """
 atom.global.add.u32 %r1, [%counter], 1;
 mul.wide.u32 %rd9, %slot, 4;
 add.u64 %rd4, %out, %rd9;
 st.global.u32 [%rd4], %r1;
""",
    "spin": """
 mov.u32 %r1, %n;
again:
 setp.eq.u32 %p1, %r1, 0;
 @%p1 bra done;
 ld.volatile.global.u32 %r2, [%out];
 sub.u32 %r1, %r1, 1;
 bra again;
done:
 red.global.add.u32 [%out], 1;
""",
}


def ptx(name: str, arch: str) -> str:
    """Return the PTX of a kernel."""
    params = [part.split() for part in _PARAMS[name].split(", ")]
    head = ", ".join(f".param .{kind} {label}" for kind, label in params)
    registers = "".join(f" .reg .b{kind[1:]} %{label};\n" for kind, label in params)
    loads = "".join(f" ld.param.{kind} %{label}, [{label}];\n" for kind, label in params)
    version = "8.8" if arch.startswith(("sm_10", "sm_12")) else "8.0"
    return (
        f".version {version}\n.target {arch}\n.address_size 64\n"
        f".visible .entry {name}({head})\n{{\n{registers}"
        f" .reg .b32 %r<10>;\n .reg .b64 %rd<10>;\n .reg .pred %p<2>;\n{loads}{_BODIES[name]} ret;\n}}\n"
    )


@functools.cache
def code(name: str, arch: str) -> bytes:
    """Return the cubin of a kernel."""
    return assemble(ptx(name, arch), arch)
