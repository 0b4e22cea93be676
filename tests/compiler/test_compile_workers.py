# ruff: noqa: ANN001  # fixtures and parametrised arguments; tests return nothing
import functools
import os
from typing import Any

import pytest

from compiler import workers
from compiler.compile import CompiledKernel, compile_kernel, compile_many, forget
from compiler.ir.serialize import kernel_key
from hcq.config import override
from hcq.errors import CompileError
from tests.compiler.kernels import ARCH, load, loop, number, op, sink, store

ABORTS = '''
import compiler.targets.host as host
from compiler import llvm
LOG = """declare float @llvm.log2.f32(float)
define float @k(float %x) {
  %y = call float @llvm.log2.f32(float %x)
  ret float %y
}
"""
def emit(ir, machine, level):
    if "fsub" in ir:  # what NVPTX cannot select ends the process
        llvm.emit_assembly(LOG, llvm.Machine("nvptx64-nvidia-cuda", "sm_80"))
    return llvm.emit_object(ir, machine, level=level)
host._emit = emit
'''


def kernel_of(name: str, value: float):
    i = loop(0, 40)
    return sink(store(0, i, op(name, load(1, i), number(value))))


@pytest.fixture
def folder(tmp_path):
    forget()
    with override(cache=tmp_path):
        yield tmp_path
    forget()


def start(arch: str) -> workers.Worker:
    return workers.Worker(arch, prelude=ABORTS)


def test_a_worker_aborted_by_llvm_costs_one_kernel():
    asts = [kernel_of("ADD", 1.0), kernel_of("SUB", 1.0), kernel_of("MUL", 3.0), kernel_of("ADD", 2.0)]
    results = workers.compile_texts([kernel_key(a) for a in asts], ARCH, processes=1, start=start)
    assert [isinstance(r, CompiledKernel) for r in results] == [True, False, True, True]
    error = results[1]
    assert isinstance(error, CompileError)
    assert "compile worker" in str(error)
    assert error.ast == kernel_key(asts[1])


class Counted:
    """A worker that compiles nothing."""

    dead = False

    def __init__(self, started: list[str], arch: str) -> None:
        started.append(arch)

    def compile(self, text: str) -> CompileError:
        return CompileError(text)

    def close(self) -> None:
        """Nothing is held."""


def test_there_are_no_more_workers_than_cpus():
    """However many processors the GPU has that is compiled for."""
    started: list[str] = []
    cpus = len(os.sched_getaffinity(0))
    texts = [str(n) for n in range(4 * cpus)]
    make: Any = functools.partial(Counted, started)
    results = workers.compile_texts(texts, "sm_90a", start=make)
    assert [str(error) for error in results] == texts
    assert 1 <= len(started) <= cpus


@pytest.mark.slow
def test_workers_make_the_same_code(folder):
    asts = [kernel_of("ADD", float(v)) for v in range(3)]
    isolated = compile_many(asts, ARCH, isolate=True)
    forget()
    with override(cache=folder / "other"):
        assert isolated == [compile_kernel(a, ARCH) for a in asts]


def test_an_error_leaves_the_other_kernels_compiled(folder):
    from compiler import stats

    good = [kernel_of("ADD", float(v)) for v in range(3)]
    i = loop(0, 40)
    bad = sink(store(0, i, op("CONTIGUOUS", load(1, i))))
    with pytest.raises(CompileError, match="CONTIGUOUS is not a value"):
        compile_many([good[0], bad, *good[1:]], ARCH)
    before = stats.lowered
    compile_many(good, ARCH)
    assert stats.lowered == before
