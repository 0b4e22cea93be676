"""Kernels of PTX forms: several forms of the group "lanes" share one, every other form has its own.

A form of the group "program" is a whole module (`programs`).

A form of the group "lanes" computes each row in one thread. In its text `$a0` is the first operand, `$d0` the
first result, and `$lane` the lane. `$cell` is the address (u32) of 64 bytes of shared memory of the thread.
`$far` is the address (u64) of 64 bytes of its global memory, which begin as zeros. Row 32 * w + l is lane l
of a warp.

Any other form is a kernel of its own, with the launch of the form. Its row is the number of the thread in the
grid (`$i`); `$a0`, `$d0`, `$lane` and `$far` are as above. A text with `$c0` loads and stores by itself:
`$c0` is the offset of the first column from `%out`, `%in` the address of the inputs, `$scratch` the offset of
scratch memory from `%out`. The text before a line of `%%` is put before the kernel.

A kernel of lanes reads the number of rows of each form from its inputs, so that one kernel can run any of its
forms.

Not here: the forms. Next: `manual` and the other modules of this folder; `vendor`, the caller.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

from compiler.targets.nvptx.assembler import assemble
from hcq.program import KernelImage
from tools.record.forms import BYTES, SLOTS, Form, Kernel, Launch, gathered
from tools.record.nv.programs import PROGRAM, module

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tools.record.forms import Inputs, Result

LANES: Final = "lanes"
PACK: Final = 32
"""The most forms in one kernel."""
THREADS: Final = 128
CELL: Final = 64
"""Bytes of a thread's own memory."""
_ALIGN: Final = 16
_HEAD: Final = ".version {version}\n.target {arch}\n.address_size 64\n"
_VERSION: Final = "8.8"
_ENTRY: Final = ".visible .entry k(.param .u64 out, .param .u64 in) {\n"
_POINTERS: Final = """ .reg .b64 %out, %in;
 ld.param.u64 %out, [out];
 ld.param.u64 %in, [in];
 cvta.to.global.u64 %out, %out;
 cvta.to.global.u64 %in, %in;
"""
_LANES_HEAD: Final = f""" .reg .b64 %at, %wide, %far;
 .reg .b32 %i, %t, %c, %count, %lane, %cell;
 .reg .pred %over;
 mov.u32 %t, %tid.x;
 mov.u32 %c, %ctaid.x;
 mov.u32 %lane, %laneid;
 mad.lo.u32 %i, %c, {THREADS}, %t;
"""
_ROW: Final = """ .reg .b64 %at, %far;
 .reg .b32 %i, %t, %c, %n, %lane;
 mov.u32 %lane, %laneid;
 mov.u32 %t, %tid.z; mov.u32 %n, %ntid.y; mov.u32 %c, %tid.y; mad.lo.u32 %t, %t, %n, %c;
 mov.u32 %n, %ntid.x; mov.u32 %c, %tid.x; mad.lo.u32 %t, %t, %n, %c;
 mov.u32 %i, %ctaid.z; mov.u32 %n, %nctaid.y; mov.u32 %c, %ctaid.y; mad.lo.u32 %i, %i, %n, %c;
 mov.u32 %n, %nctaid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %i, %i, %n, %c;
 mov.u32 %n, %ntid.x; mov.u32 %c, %ntid.y; mul.lo.u32 %n, %n, %c;
 mov.u32 %c, %ntid.z; mul.lo.u32 %n, %n, %c; mad.lo.u32 %i, %i, %n, %t;
"""
"""The row of a thread: its number in the grid."""
_PLACE: Final = re.compile(r"\$(a|d)(\d+)|\$(lane|cell|far|i|at)\b")
_STATIC: Final = re.compile(r"\.shared\s+(?:\.align\s+(\d+)\s+)?\.b8\s+\w+\[(\d+)\]")


def _register(type_: str) -> str:
    return "pred" if type_ == "pred" else f"b{max(16, 8 * BYTES[type_])}"


def _loads(form: Form, at: int) -> Iterator[str]:
    """Yield the instructions that load a row's operands; the inputs begin `at` bytes after `%in`."""
    stride = 8 * len(form.operands)
    if not stride:
        return
    yield f"mad.wide.u32 %at, %i, {stride}, %in; add.u64 %at, %at, {at};"
    for n, type_ in enumerate(form.operands):
        if type_ == "pred":
            yield f".reg .b32 pa{n}; ld.global.b32 pa{n}, [%at+{8 * n}]; setp.ne.u32 a{n}, pa{n}, 0;"
        else:
            yield f"ld.global.{_register(type_)} a{n}, [%at+{8 * n}];"


def _stores(form: Form, at: int) -> Iterator[str]:
    for n, (result, offset) in enumerate(zip(form.results, form.offsets, strict=False)):
        size = BYTES[result.type]
        yield f"mad.wide.u32 %at, %i, {size}, %out;"
        value = f"d{n}"
        if result.type == "pred":
            yield f".reg .b16 pd{n}; selp.u16 pd{n}, 1, 0, d{n};"
            value = f"pd{n}"
        yield f"st.global.b{8 * size} [%at+{at + offset}], {value};"


def _filled(text: str) -> str:
    return _PLACE.sub(lambda m: f"%{m[3]}" if m[3] else f"{m[1]}{m[2]}", text)


def _one(form: Form, number: int, source: int, target: int) -> str:
    """Return the block of a form in a kernel of lanes."""
    lines = [f"{{ // {form.name}", f"ld.global.u32 %count, [%in+{4 * number}];"]
    lines += ["setp.ge.u32 %over, %i, %count;", f"@%over bra after{number};"]
    lines += [f".reg .{_register(type_)} a{n};" for n, type_ in enumerate(form.operands)]
    lines += [f".reg .{_register(one.type)} d{n};" for n, one in enumerate(form.results)]
    lines += _loads(form, source)
    lines.append(_filled(form.text))
    lines += _stores(form, target)
    return "\n ".join(lines) + f"\n}}\nafter{number}:\n"


class Pack:
    """A kernel of several forms of the group "lanes"."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self.forms = list(forms)
        self.rows = max(form.count for form in forms)
        self.groups = -(-self.rows // THREADS)
        self.at: dict[str, int] = {}
        text = ""
        source, target = -(-4 * len(forms) // _ALIGN) * _ALIGN, 0
        self._inputs, places = gathered(forms, source)
        for number, form in enumerate(forms):
            self.at[form.name] = target
            text += _one(form, number, places[number], target)
            target += form.result_bytes
        self.scratch = -(-target // CELL) * CELL
        self.out_bytes = self.scratch
        head = _LANES_HEAD
        if "%cell" in text:
            head += f" .shared .align 128 .b8 cells[{THREADS * CELL}];\n"
            head += f" mov.u32 %cell, cells; mad.lo.u32 %cell, %t, {CELL}, %cell;\n"
        if "%far" in text:
            head += f" mad.wide.u32 %far, %i, {CELL}, %out; add.u64 %far, %far, {self.scratch};\n"
            self.out_bytes += CELL * THREADS * self.groups
        self.body = _ENTRY + _POINTERS + head + text + " ret;\n}\n"
        self.shared = THREADS * CELL if "%cell" in text else 0

    def kernel(self, arch: str, folder: Path | None, wanted: frozenset[str]) -> Kernel:
        """Return the kernel; forms whose names are not in `wanted` have no rows.

        `folder` has prepared cubins, if given; else the kernel is assembled.
        """
        counts = [form.count if form.name in wanted else 0 for form in self.forms]
        table = np.array(counts, "<u4").tobytes()
        table += bytes(-len(table) % _ALIGN)
        at = {name: place for name, place in self.at.items() if name in wanted}
        image = _image(
            _HEAD.format(version=_VERSION, arch=arch) + self.body, arch, folder, THREADS, self.shared
        )
        return Kernel(
            image, Launch((self.groups, 1, 1), (THREADS, 1, 1)), table + self._inputs, self.out_bytes, at
        )


def _far(form: Form) -> int:
    """Return the offset in `out` of the threads' own memory, of a form that is a kernel of its own."""
    return -(-form.result_bytes // CELL) * CELL


def whole(form: Form, arch: str) -> str:
    """Return the PTX of a form as a kernel of its own."""
    if form.group == PROGRAM:
        return module(form.text, _VERSION, arch)
    before, mark, text = form.text.rpartition("\n%%\n")
    entry, body = _ENTRY, text
    if form.launch.cluster > 1:
        entry = entry.replace(") {", f") .reqnctapercluster {form.launch.cluster}, 1, 1 {{")
    if "$c" in text:
        body = re.sub(r"\$c(\d+)", lambda m: str(form.offsets[int(m[1])]), text)
        body = body.replace("$scratch", str(_far(form)))
    else:
        lines = [f".reg .{_register(type_)} a{n};" for n, type_ in enumerate(form.operands)]
        lines += [f".reg .{_register(one.type)} d{n};" for n, one in enumerate(form.results)]
        lines += [*_loads(form, 0), _filled(text), *_stores(form, 0)]
        far = f" mad.wide.u32 %far, %i, {CELL}, %out; add.u64 %far, %far, {_far(form)};\n"
        body = _ROW + far + "\n ".join(lines)
    head = _HEAD.format(version=_VERSION, arch=arch) + (before if mark else "")
    return f"{head}\n{entry}{_POINTERS}{body}\n ret;\n}}\n"


def file_of(ptx: str, arch: str, folder: Path) -> Path:
    """Return the path of the prepared cubin of a PTX text; it need not exist."""
    return folder / f"record-{arch}-{hashlib.sha256(ptx.encode()).hexdigest()[:16]}.cubin.z"


def _image(ptx: str, arch: str, folder: Path | None, threads: int, shared: int) -> KernelImage:
    file = file_of(ptx, arch, folder) if folder is not None else None
    code = zlib.decompress(file.read_bytes()) if file is not None and file.exists() else _assembled(ptx, arch)
    return KernelImage(
        name="k", arch=arch, code=code, args=SLOTS, kernarg_size=16, max_threads=threads, shared_bytes=shared
    )


@functools.lru_cache(64)
def _assembled(ptx: str, arch: str) -> bytes:
    return assemble(ptx, arch)


def _static(text: str) -> int:
    """Return the bytes of static shared memory that a kernel declares."""
    total = 0
    for align, size in _STATIC.findall(text):
        step = int(align or 1)
        total = -(-total // step) * step + int(size)
    return total


def packs(forms: Sequence[Form]) -> list[Pack]:
    """Return the kernels of the forms of the group "lanes", in order."""
    lanes = [form for form in forms if form.group == LANES]
    return [Pack(lanes[at : at + PACK]) for at in range(0, len(lanes), PACK)]


def kernels(forms: Sequence[Form], arch: str, folder: Path | None, packed: Sequence[Pack]) -> list[Kernel]:
    """Return the kernels that run some forms; `packed` must have those of the group "lanes".

    `folder` has prepared kernels; None is none. Raises as `assemble`, which makes those that are missing.
    """
    wanted = frozenset(form.name for form in forms)
    made = [pack.kernel(arch, folder, wanted & pack.at.keys()) for pack in packed if wanted & pack.at.keys()]
    for form in forms:
        if form.group == LANES:
            continue
        text, shape = whole(form, arch), form.launch
        threads = math.prod(shape.threads)
        image = _image(text, arch, folder, threads, shape.shared_bytes + _static(text))
        inputs = np.ascontiguousarray(form.inputs).tobytes()
        made.append(Kernel(image, shape, inputs, _far(form) + shape.scratch_bytes, {form.name: 0}))
    return made


def prepare(ptx: str, arch: str, folder: Path) -> None:
    """Assemble a PTX text into the folder of prepared kernels. Raises as `assemble`, and `OSError`."""
    file_of(ptx, arch, folder).write_bytes(zlib.compress(assemble(ptx, arch), 6))


def texts(forms: Sequence[Form], arch: str, packed: Sequence[Pack]) -> Iterator[str]:
    """Yield the PTX of every kernel of some forms."""
    names = {form.name for form in forms}
    for pack in packed:
        if names & pack.at.keys():
            yield _HEAD.format(version=_VERSION, arch=arch) + pack.body
    for form in forms:
        if form.group != LANES:
            yield whole(form, arch)


def lanes(
    name: str,
    text: str,
    operands: tuple[str, ...],
    inputs: Inputs,
    results: tuple[Result, ...],
    *,
    doubt: int = 0,
    needs: int = 0,
    until: int = 1 << 30,
) -> Form:
    """Return a form of the group "lanes"; see `Form` for the arguments."""
    return Form(name, text, operands, inputs, results, doubt=doubt, group=LANES, needs=needs, until=until)
