# ruff: noqa: ANN001  # fixtures and parametrised arguments; tests return nothing
import functools
import os
import threading
from dataclasses import replace
from typing import Any

import pytest

from compiler import llvm, workers
from compiler.compile import CachePlace, CompiledKernel, _on_threads, compile_kernel, compile_many, forget
from compiler.ir.serialize import kernel_key
from compiler.targets import target_of
from hcq.config import override
from hcq.errors import CompileError
from tests.compiler.kernels import ARCH, load, loop, number, op, sink, store

ABORTS = '''
import compiler.targets.host.target as host
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

MEETING_S = 600.0
"""Seconds after which a kernel that is compiled alone is an error."""


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


def test_a_worker_imports_no_module_of_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "struct.py").write_text("raise SystemExit('a module of the working folder ran')\n")
    monkeypatch.chdir(tmp_path)
    (result,) = workers.compile_texts([kernel_key(kernel_of("ADD", 1.0))], ARCH, processes=1)
    assert isinstance(result, CompiledKernel)


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


class Meeting:
    """A worker that returns only while another one works."""

    dead = False

    def __init__(self, meeting: threading.Barrier, arch: str) -> None:
        self.meeting = meeting
        self.arch = arch

    def compile(self, text: str) -> CompileError:
        self.meeting.wait(MEETING_S)
        return CompileError(text)

    def close(self) -> None:
        """Nothing is held."""


def test_worker_processes_compile_kernels_of_one_graph_side_by_side():
    make: Any = functools.partial(Meeting, threading.Barrier(2))
    results = workers.compile_texts(["a", "b", "c", "d"], "sm_90a", processes=2, start=make)
    assert [str(error) for error in results] == ["a", "b", "c", "d"]


def test_threads_compile_kernels_of_one_graph_side_by_side(folder):
    meeting = threading.Barrier(2)
    host = target_of(ARCH)

    def emit(ir: str, machine: llvm.Machine, level: int) -> bytes:
        meeting.wait(MEETING_S)
        return host.emit(ir, machine, level)

    asts = [kernel_of("ADD", float(v)) for v in range(4)]
    missing = {ast: CachePlace("", kernel_key(ast)) for ast in asts}
    found = _on_threads(missing, replace(host, cores=2, emit=emit))
    assert [kernel for _, kernel in found] == [compile_kernel(ast, ARCH) for ast in asts]


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
    with pytest.raises(CompileError, match="saw the operation CONTIGUOUS"):
        compile_many([good[0], bad, *good[1:]], ARCH)
    before = stats.lowered
    compile_many(good, ARCH)
    assert stats.lowered == before
