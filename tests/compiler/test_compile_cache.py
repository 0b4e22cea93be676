# ruff: noqa: ANN001  # fixtures and parametrised arguments; tests return nothing
import json
import subprocess
import sys

import numpy as np
import pytest

from compiler import cache, llvm, stats
from compiler.compile import compile_kernel, compile_many, forget
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key
from hcq.config import override
from hcq.errors import UnsupportedError
from hcq.program import ArgKind
from hcq.store import Store, key_of
from tests.children import python
from tests.compiler.host_kernel import HostKernel
from tests.compiler.kernels import ARCH, load, loop, number, op, reduce, sink, store


@pytest.fixture
def folder(tmp_path):
    forget()
    with override(cache=tmp_path):
        yield tmp_path
    forget()


def add_number(value: float, n: int = 100):
    i = loop(0, n)
    return sink(store(0, i, op("ADD", load(1, i), number(value))))


def files(folder):
    return [p for p in folder.rglob("*") if p.is_file()]


def test_image_describes_the_argument_block(folder):
    from compiler.ir import index as symbolic

    i, r = loop(0, 8), loop(1, 9)
    start = symbolic.Variable("start", 0, 5)
    ast = sink(store(0, i, reduce(op("MUL", load(0, i), load(1, i * 9 + r + start)), "ADD", r)))
    image = compile_kernel(ast, ARCH).image
    assert [(a.name, a.kind, a.offset, a.size, a.access) for a in image.args] == [
        ("b0", ArgKind.POINTER, 0, 8, "rw"), ("b1", ArgKind.POINTER, 8, 8, "r"),
        ("start", ArgKind.INT, 16, 8, "r"),
    ]  # fmt: skip
    assert image.kernarg_size == 24
    assert image.arch == ARCH
    assert image.group_ns > 0


def test_a_kernel_is_lowered_once(folder):
    before = stats.lowered
    first = compile_kernel(add_number(1.0), ARCH)
    assert compile_kernel(add_number(1.0), ARCH) is first
    forget()
    assert compile_kernel(add_number(1.0), ARCH) == first
    assert stats.lowered == before + 1


def test_cached_code_runs(folder):
    compile_kernel(add_number(2.0), ARCH)
    forget()
    kernel = compile_kernel(add_number(2.0), ARCH)
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    HostKernel(kernel.image.code, kernel.image.name).run([y.ctypes.data, x.ctypes.data], [], kernel.groups[0])
    np.testing.assert_array_equal(y, x + 2)


def test_different_kernels_have_different_keys(folder):
    texts = [kernel_key(add_number(v, n)) for v in (0.0, -0.0, 1.0) for n in (7, 8)]
    keys = {cache.key_of(t, arch, s) for t in texts for arch in ("a", "b") for s in ("x", "y")}
    assert len(keys) == 4 * len(texts)


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_file_is_compiled_again_with_a_note(folder, capsys, damage):
    first = compile_kernel(add_number(3.0), ARCH)
    (path,) = files(folder)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if damage is None else damage)
    forget()
    before = stats.lowered
    with override(debug=1):
        assert compile_kernel(add_number(3.0), ARCH).image == first.image
    assert stats.lowered == before + 1
    assert "damaged" in capsys.readouterr().err
    assert path.read_bytes() == data


def test_swapped_cache_entries_are_recompiled(folder):
    kernels = [compile_kernel(add_number(value), ARCH) for value in (7.0, 8.0)]
    one, two = files(folder)
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    forget()
    before = stats.lowered
    assert [compile_kernel(add_number(value), ARCH) for value in (7.0, 8.0)] == kernels
    assert stats.lowered == before + 2
    assert one.read_bytes() == data


def facts_of(payload: bytes):
    head, _, code = payload.partition(b"\n")
    return json.loads(head), code


def with_facts(**changed: object):
    def change(payload: bytes) -> bytes:
        facts, code = facts_of(payload)
        return json.dumps({**facts, **changed}).encode() + b"\n" + code

    return change


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "change",
    [
        lambda _: b"", lambda _: b"\n", lambda payload: b"[1, 2]\n" + facts_of(payload)[1],
        lambda payload: b"\xff" + payload, lambda payload: b"[" * 100_000 + payload,
        lambda payload: b"{}\n" + facts_of(payload)[1], lambda payload: payload.partition(b"\n")[0],
        lambda payload: payload[:-1], with_facts(more=1), with_facts(name=None), with_facts(kernarg_size=-8),
        with_facts(kernarg_size=8), with_facts(max_threads=True), with_facts(groups=[1, 1]),
        with_facts(threads=[1, 1, "1"]), with_facts(groups=[0, 1, 1]),
        with_facts(args=[["b0", "PLACE", 0, 8, "rw"]]), with_facts(args=[["b0", "POINTER", 0, 8]]),
        with_facts(args=[["b0", "POINTER", 4, 8, "rw"]]),
        with_facts(args=[["b0", "POINTER", 0, 8, "rw"], ["b1", "POINTER", 0, 8, "r"]]),
        with_facts(arch="another"),
    ],
)  # fmt: skip
def test_a_sound_entry_that_is_no_kernel_is_compiled_again(folder, change):
    first = compile_kernel(add_number(9.0), ARCH)
    store = Store(folder)
    (path,) = files(folder)
    key = path.parent.name + path.name
    whole = store.get(cache.KIND, key)
    store.put(cache.KIND, key, change(whole))
    forget()
    before = stats.lowered
    assert compile_kernel(add_number(9.0), ARCH) == first
    assert stats.lowered == before + 1
    assert store.get(cache.KIND, key) == whole


def test_a_key_depends_on_the_compilers_sources_and_on_llvm(folder):
    parts = ("sources", "llvm", "arch", "settings", "text")
    assert len({key_of(*parts[:n], "other", *parts[n + 1 :]) for n in range(len(parts))}) == len(parts)
    key = cache.key_of("text", "arch", "settings")
    assert cache.compiler_digest() == key_of(cache.sources_digest(), llvm.version())
    assert key == key_of(cache.compiler_digest(), "arch", "settings", "text")


def test_a_key_depends_on_the_assembler(folder):
    from compiler.targets import target_of
    from compiler.targets.nvptx.assembler import identity

    assert target_of("sm_90a").settings == identity()
    assert "nvJitLink" in identity()


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    forget()
    with override(cache=blocked, debug=1):
        assert compile_kernel(add_number(4.0), ARCH).groups == (1, 1, 1)
    forget()
    assert "cannot keep" in capsys.readouterr().err


def test_no_half_written_file_is_left(folder):
    compile_many([add_number(float(v)) for v in range(5)], ARCH)
    assert len(files(folder)) == 5
    assert not [p for p in files(folder) if p.name.startswith(".new-")]


def test_a_hit_loads_neither_llvm_nor_the_lowering_code(folder):
    compile_kernel(add_number(5.0), ARCH)
    text = f"""
import sys
from pathlib import Path
from hcq.config import override
from compiler.compile import compile_kernel
from compiler.ir.serialize import parse_kernel
from compiler import stats
with override(cache=Path({str(folder)!r})):
    kernel = compile_kernel(parse_kernel({kernel_key(add_number(5.0))!r}), {ARCH!r})
assert stats.lowered == 0 and stats.hits == 1
assert kernel.image.code[:4] == b"\\x7fELF"
heavy = ("llvmlite", "cffi", "numpy", "compiler.pipeline", "compiler.emit.linearize")
loaded = [m for m in heavy if m in sys.modules]
assert not loaded, loaded
with open("/proc/self/maps") as maps:
    assert "llvm" not in maps.read()
"""
    python("-c", text)


def test_many_kernels_are_compiled_once_each(folder):
    asts = [add_number(float(v)) for v in (1, 2, 3, 1, 2, 3)]
    before = stats.lowered
    kernels = compile_many(asts, ARCH)
    assert stats.lowered == before + 3
    assert kernels[:3] == kernels[3:]
    assert [k.image for k in kernels] == [compile_kernel(a, ARCH).image for a in asts]


def test_code_does_not_depend_on_the_process(folder):
    ast = add_number(6.0)
    text = (
        "import sys; from compiler.compile import compile_uncached;"
        "from compiler.ir.serialize import parse_kernel;"
        f"sys.stdout.buffer.write(compile_uncached(parse_kernel({kernel_key(ast)!r}), {ARCH!r}).image.code)"
    )
    other = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True).stdout
    assert other == compile_kernel(ast, ARCH).image.code


def test_an_unknown_arch_is_refused_by_name(folder):
    with pytest.raises(UnsupportedError, match="no compiler target for arch 'z80'"):
        compile_kernel(add_number(1.0), "z80")


def test_code_needs_nothing_from_outside(folder):
    i, r = loop(0, 64), loop(1, 100)
    value = op("SIN", op("MUL", load(1, i * 100 + r), number(3.0)))
    kernel = compile_kernel(sink(store(0, i, reduce(value, "ADD", r))), ARCH)
    loaded = HostKernel(kernel.image.code, kernel.image.name)
    assert set(loaded.outside) <= {"memcpy", "memset"}
    assert loaded.relocations <= {2, 4}


def test_a_mask_operation_without_a_range_is_legal(folder):
    from compiler.ir import index as symbolic

    ast = sink(store(0, symbolic.ZERO, op(Ops.EXP, load(1, symbolic.ZERO))))
    kernel = compile_kernel(ast, ARCH)
    x, y = np.ones(1, np.float32), np.zeros(1, np.float32)
    HostKernel(kernel.image.code).run([y.ctypes.data, x.ctypes.data], [], 1)
    np.testing.assert_allclose(y, np.e, rtol=1e-6)


def test_kernels_in_memory_are_bounded_by_bytes_and_those_used_last_stay():
    recent = cache.Recent(1000)
    for n in range(10):
        recent.put(n, str(n), 300)
        assert recent.get(0) == "0"
        assert recent.nbytes <= 1000
    assert [n for n in range(10) if recent.get(n)] == [0, 8, 9]
    recent.put(0, "larger", 5000)
    assert (len(recent), recent.get(0), recent.nbytes) == (1, "larger", 5000)
    recent.put(1, "one", 10)
    assert (recent.get(0), recent.nbytes) == (None, 10)
    recent.put(1, "again", 20)
    assert (recent.get(1), recent.nbytes) == ("again", 20)
    recent.clear()
    assert (len(recent), recent.nbytes) == (0, 0)


def test_a_kept_kernel_counts_with_its_code_and_its_nodes(folder):
    from compiler.compile import _made

    kernel = compile_kernel(add_number(21.0), ARCH)
    assert _made.nbytes > len(kernel.image.code) + len(kernel_key(add_number(21.0)))
    forget()
    assert _made.nbytes == 0
