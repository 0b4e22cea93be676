"""`compile_kernel` and `compile_many`: kernel ASTs to images, through the caches.

A kernel is looked up in this process, then on disk, then compiled. The two lookups need only the kernel's
text: they load neither LLVM nor the lowering code. The first lookup of a kernel in a process raises the audit
event `compiler.kernel` with its text and arch (`sys.addaudithook`), whether or not it is then compiled.

Not here: the steps of a compilation (`pipeline`), the processes in which risky kernels are compiled
(`workers`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from compiler import cache, stats
from compiler.image import CompiledKernel, MalformedError, from_bytes, slots, to_bytes
from compiler.ir.serialize import kernel_key
from compiler.targets import target_of
from hcq.config import config
from hcq.errors import CompileError, HcqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.ir.uop import UOp
    from compiler.kernel.plan import Plan
    from compiler.targets.base import Target
    from hcq.program import KernelImage

OPT_LEVEL = 0
"""LLVM's pipeline.

None. The linear form is already free of repeated and loop-invariant work; the code generator does the rest.
"""
SEVERAL = 3
"""Missing kernels from which on compiling in parallel pays."""

MADE_BYTES = 64 << 20
"""Of kernels that this process keeps in memory; the disk keeps more."""
NODE_BYTES = 20
"""Of a kernel's nodes in memory, a character of its text."""

_made: cache.Recent[CompiledKernel] = cache.Recent(MADE_BYTES)


def compile_kernel(ast: UOp, arch: str) -> CompiledKernel:
    """Compile a kernel for an arch (`DeviceInfo.arch`).

    The argument block of the image has one 8-byte pointer for every BUFFER slot, in order, then one int64 for
    every VAR in order of name. A buffer that the kernel stores to must not be visible through another slot,
    and host kernels use up to 128 KiB of their thread's stack. Raises CompileError with the kernel's text, or
    UnsupportedError for an arch without a target.
    """
    found, key, text = _lookup(ast, arch)
    if found is not None:
        return found
    return _keep(ast, arch, (key, text), _compile(ast, target_of(arch), text))


def compile_many(asts: Sequence[UOp], arch: str, *, isolate: bool = False) -> list[CompiledKernel]:
    """Compile several kernels; three or more that no cache has are compiled in parallel, equal ones once.

    On threads for targets that LLVM cannot fail on (it releases the interpreter and every compile has its own
    context), else, or with `isolate`, in spawned worker processes: one that aborts inside LLVM becomes a
    CompileError that carries the kernel's text. All others are compiled and kept before an error is raised.
    """
    found: dict[UOp, CompiledKernel] = {}
    missing: dict[UOp, tuple[str, str]] = {}
    for ast in asts:
        if ast not in found and ast not in missing:
            kernel, key, text = _lookup(ast, arch)
            if kernel is not None:
                found[ast] = kernel
            else:
                missing[ast] = key, text
    errors: list[HcqError] = []
    for ast, result in _compile_all(missing, arch, isolate=isolate):
        if isinstance(result, CompiledKernel):
            found[ast] = _keep(ast, arch, missing[ast], result)
        else:
            errors.append(result)
    if errors:
        raise errors[0]
    return [found[ast] for ast in asts]


def _compile_all(
    missing: dict[UOp, tuple[str, str]], arch: str, *, isolate: bool
) -> list[tuple[UOp, CompiledKernel | HcqError]]:
    """Every missing kernel with its image or its error."""
    target = target_of(arch)
    if len(missing) >= SEVERAL or (isolate and missing):
        if isolate or target.may_abort:
            from compiler import workers  # noqa: PLC0415  # rarely needed

            results = workers.compile_texts([text for _, text in missing.values()], arch)
            stats.lowered += len(missing)
            return list(zip(missing, results, strict=True))
        return _on_threads(missing, target)
    out: list[tuple[UOp, CompiledKernel | HcqError]] = []
    for ast, (_, text) in missing.items():
        try:
            out.append((ast, _compile(ast, target, text)))
        except HcqError as error:
            out.append((ast, error))
    return out


def _on_threads(
    missing: dict[UOp, tuple[str, str]], target: Target
) -> list[tuple[UOp, CompiledKernel | HcqError]]:
    """Lower here, one kernel after the other, while threads run LLVM on those that are ready."""
    from concurrent.futures import Future, ThreadPoolExecutor  # noqa: PLC0415  # only with several kernels

    out: list[tuple[UOp, CompiledKernel | HcqError]] = []
    with ThreadPoolExecutor(target.cores) as pool:
        started: list[tuple[UOp, Future[CompiledKernel] | HcqError]] = []
        for ast, (_, text) in missing.items():
            try:
                ir, plan = _lower(ast, target, text)
                started.append((ast, pool.submit(_emit, ast, target, ir, plan)))
            except HcqError as error:
                started.append((ast, error))
        for ast, future in started:
            try:
                out.append((ast, future if isinstance(future, HcqError) else future.result()))
            except HcqError as error:
                out.append((ast, error))
    return out


def _lookup(ast: UOp, arch: str) -> tuple[CompiledKernel | None, str, str]:
    """(the kernel if a cache has it, its key, its text)."""
    made = _made.get((ast, arch))
    if made is not None:
        return made, "", ""
    text = kernel_key(ast)
    sys.audit("compiler.kernel", text, arch)
    target = target_of(arch)
    key = cache.key_of(text, arch, f"{target.settings} O{OPT_LEVEL}")
    payload = cache.get(key)
    if payload is None:
        return None, key, text
    try:
        kernel = from_bytes(payload, arch=target.arch)
    except MalformedError as error:
        if config().debug:
            _say(f"compiler cache: {error}; compiling again")
        return None, key, text
    stats.hits += 1
    _remember(ast, arch, kernel, text)
    return kernel, key, text


def _keep(ast: UOp, arch: str, place: tuple[str, str], kernel: CompiledKernel) -> CompiledKernel:
    """Store a kernel on disk under its key, and in this process; `place` is its key and its text."""
    key, text = place
    cache.put(key, to_bytes(kernel))
    _remember(ast, arch, kernel, text)
    return kernel


def _remember(ast: UOp, arch: str, kernel: CompiledKernel, text: str) -> None:
    _made.put((ast, arch), kernel, len(kernel.image.code) + NODE_BYTES * len(text))


def forget() -> None:
    """Drop the kernels cached in this process; the disk cache is kept."""
    _made.clear()


def compile_uncached(ast: UOp, arch: str) -> CompiledKernel:
    """Compile a kernel without looking it up or keeping it: what workers and searches use."""
    return _compile(ast, target_of(arch), kernel_key(ast))


def _compile(ast: UOp, target: Target, text: str) -> CompiledKernel:
    return _emit(ast, target, *_lower(ast, target, text))


def _lower(ast: UOp, target: Target, text: str) -> tuple[str, Plan]:
    from compiler.pipeline import lower  # noqa: PLC0415  # a hit must not load it

    stats.lowered += 1
    try:
        return lower(ast, target)
    except CompileError as error:
        if error.ast:
            raise
        raise CompileError(str(error), ast=text) from error


def _emit(ast: UOp, target: Target, ir: str, plan: Plan) -> CompiledKernel:
    from compiler.kernel.naming import kernel_name  # noqa: PLC0415  # as above
    from compiler.pipeline import arguments  # noqa: PLC0415  # as above
    from hcq.program import KernelImage  # noqa: PLC0415

    name = kernel_name(ast)
    code = target.emit(ir, target.machine(), OPT_LEVEL)
    shared_bytes, scratch_bytes = target.memory(code, name)
    args = slots(arguments(ast))
    groups, threads = plan.launch()
    count = groups[0] * groups[1] * groups[2]
    image = KernelImage(
        name=name,
        arch=target.arch,
        code=code,
        args=args,
        kernarg_size=8 * len(args),
        shared_bytes=shared_bytes,
        scratch_bytes=scratch_bytes,
        max_threads=threads[0] * threads[1] * threads[2],
        group_ns=max(1, round(plan.nanoseconds / count)),
    )
    if config().debug:
        _tell(image, plan, ir)
    return CompiledKernel(image, groups, threads)


def _tell(image: KernelImage, plan: Plan, ir: str) -> None:
    """Print what DEBUG selects: 1 the plan, 4 the IR as well; `pipeline` prints the linear form at 3."""
    text = (
        f"compiled for {image.arch}: {len(image.code)} bytes, {image.group_ns} ns a workgroup\n{plan.text()}"
    )
    _say(text if config().debug < 4 else f"{text}\n{ir}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201  # DEBUG talk goes to stderr
