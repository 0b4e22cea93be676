"""`compile_kernel` and `compile_many`: kernel ASTs to images, through the caches.

A kernel is looked up in this process, then on disk; if neither has it, it is compiled. With `BEAM=n` it is
planned by the stored winner of a search, if there is one, and kernels are not kept in this process. Lookups
use only the kernel's text, and load neither LLVM nor the lowering code. A lookup that reaches the disk cache
raises the audit event "compiler.kernel" with the kernel's text and architecture (`sys.addaudithook`).

Not here: compilation in worker processes (`workers`), the keys (`cache`). Next: `pipeline`, the steps.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
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
    from compiler.pipeline import Steps
    from compiler.plan.choice import Choice
    from compiler.targets.shared.target import Target
    from hcq.config import Config

OPT_LEVEL = 0
"""LLVM's optimisation level: no passes, because the linear form has no repeated or loop-invariant work."""
SEVERAL = 3
"""At least as many missing kernels are compiled in parallel."""

MADE_BYTES = 64 << 20
"""Limit, in bytes, of the kernels that this process keeps in memory."""
NODE_BYTES = 20
"""Estimated bytes of a kernel's nodes in memory for each character of its text."""


@dataclass(frozen=True, slots=True)
class CachePlace:
    """The key of a kernel in the disk cache, and what its compilation needs."""

    key: str
    """The key; "" for a kernel that was found in this process or is not cached."""
    text: str
    """The kernel's canonical text; "" for a kernel that was found in this process."""
    choice: Choice | None = None
    """The choice by which it is planned; None for the estimated plan."""


_NOWHERE = CachePlace("", "")
_made: cache.Recent[CompiledKernel] = cache.Recent(MADE_BYTES)


def compile_kernel(ast: UOp, arch: str) -> CompiledKernel:
    """Compile a kernel for an architecture (`DeviceInfo.arch`), or return it from a cache. Thread-safe.

    The argument block of the image has an 8-byte pointer for each BUFFER slot, in order, then an int64 for
    each VAR in order of name. A buffer that the kernel stores to must not be accessible through another slot.
    Buffers of GPU kernels start at multiples of 16 bytes. Host kernels use up to 12 MiB of their thread's
    stack. Raises `CompileError` with the kernel's text, and `UnsupportedError` for an architecture without a
    target or a missing library.
    """
    settings = config()
    target = target_of(arch, settings)
    found, place = _lookup(ast, arch, target, settings)
    if found is not None:
        return found
    return _keep(ast, arch, place, _compile(ast, target, place), settings)


def compile_many(
    asts: Sequence[UOp], arch: str, *, isolate: bool = False, settings: Config | None = None
) -> list[CompiledKernel]:
    """Compile several kernels, and return them in order; three or more missing ones are compiled in parallel.

    Threads compile for targets on which LLVM does not abort. Spawned worker processes compile for other
    targets, and with `isolate` for all. A kernel on which LLVM aborts becomes a `CompileError` with its text.
    Equal kernels are compiled once. Errors are those of `compile_kernel`; before the first is raised, all
    other kernels are compiled and cached; an architecture without a target is refused at once. `settings` is
    `config()`, if the caller has read it already.
    """
    settings = settings or config()
    target = target_of(arch, settings)
    found: dict[UOp, CompiledKernel] = {}
    missing: dict[UOp, CachePlace] = {}
    for ast in asts:
        if ast not in found and ast not in missing:
            kernel, place = _lookup(ast, arch, target, settings)
            if kernel is not None:
                found[ast] = kernel
            else:
                missing[ast] = place
    errors: list[HcqError] = []
    for ast, result in _compile_all(missing, arch, target, isolate=isolate):
        if isinstance(result, CompiledKernel):
            found[ast] = _keep(ast, arch, missing[ast], result, settings)
        else:
            errors.append(result)
    if errors:
        raise errors[0]
    return [found[ast] for ast in asts]


def _compile_all(
    missing: dict[UOp, CachePlace], arch: str, target: Target, *, isolate: bool
) -> list[tuple[UOp, CompiledKernel | HcqError]]:
    """Return every missing kernel with its result or its error."""
    if len(missing) >= SEVERAL or (isolate and missing):
        if isolate or target.may_abort:
            from compiler import workers  # noqa: PLC0415  # rarely needed

            results = workers.compile_texts([(p.text, p.choice) for p in missing.values()], arch)
            stats.lowered += len(missing)
            return list(zip(missing, results, strict=True))
        return _on_threads(missing, target)
    out: list[tuple[UOp, CompiledKernel | HcqError]] = []
    for ast, place in missing.items():
        try:
            out.append((ast, _compile(ast, target, place)))
        except HcqError as error:
            out.append((ast, error))
    return out


def _on_threads(
    missing: dict[UOp, CachePlace], target: Target
) -> list[tuple[UOp, CompiledKernel | HcqError]]:
    """Lower the kernels in this thread, in order, while a thread pool runs LLVM on the lowered ones."""
    from concurrent.futures import Future, ThreadPoolExecutor  # noqa: PLC0415  # only with several kernels

    out: list[tuple[UOp, CompiledKernel | HcqError]] = []
    with ThreadPoolExecutor(target.cores) as pool:
        started: list[tuple[UOp, Future[CompiledKernel] | HcqError]] = []
        for ast, place in missing.items():
            try:
                started.append((ast, pool.submit(_emit, _lower(ast, target, place), target)))
            except HcqError as error:
                started.append((ast, error))
        for ast, future in started:
            try:
                out.append((ast, future if isinstance(future, HcqError) else future.result()))
            except HcqError as error:
                out.append((ast, error))
    return out


def _variant(arch: str, settings: Config) -> str:
    """Return a name for an architecture and the settings of a plan that can change in a process."""
    return arch if settings.winograd else f"{arch} without winograd"


def _lookup(
    ast: UOp, arch: str, target: Target, settings: Config
) -> tuple[CompiledKernel | None, CachePlace]:
    """Return the kernel, None if no cache has it; and its place in the caches."""
    beam = settings.beam
    made = _made.get((ast, _variant(arch, settings))) if not beam else None
    if made is not None:
        return made, _NOWHERE
    text = kernel_key(ast)
    sys.audit("compiler.kernel", text, arch)
    made_with, choice = f"{target.settings} O{OPT_LEVEL}", None
    if beam:
        from compiler import winners  # noqa: PLC0415  # only for searches

        choice = winners.choice_of(text, target)
        made_with += f" {choice}" if choice else ""
    place = CachePlace(cache.key_of(text, arch, made_with), text, choice)
    payload = cache.get(place.key, settings)
    if payload is None:
        return None, place
    try:
        kernel = from_bytes(payload, arch=target.arch)
    except MalformedError as error:
        if settings.debug:
            print(f"compiler cache: {error}; compiling again", file=sys.stderr)  # noqa: T201  # DEBUG output
        return None, place
    stats.hits += 1
    _remember(ast, arch, kernel, text, settings)
    _show(ast, kernel, settings.debug, cached=True)
    return kernel, place


def _keep(ast: UOp, arch: str, place: CachePlace, kernel: CompiledKernel, settings: Config) -> CompiledKernel:
    """Store a kernel in both caches and return it."""
    cache.put(place.key, to_bytes(kernel), settings)
    _remember(ast, arch, kernel, place.text, settings)
    _show(ast, kernel, settings.debug, cached=False)
    return kernel


def _remember(ast: UOp, arch: str, kernel: CompiledKernel, text: str, settings: Config) -> None:
    """Keep a kernel in this process, unless a search may still find another plan for it."""
    if not settings.beam:
        _made.put((ast, _variant(arch, settings)), kernel, len(kernel.image.code) + NODE_BYTES * len(text))


def forget() -> None:
    """Drop the kernels cached in this process; the disk cache is kept."""
    _made.clear()


def compile_uncached(ast: UOp, arch: str, choice: Choice | None = None) -> CompiledKernel:
    """Compile a kernel without the caches, under a choice or, without one, under the estimated plan.

    Raises as `compile_kernel`, and `CompileError` if the kernel has no plan of the choice.
    """
    return _compile(ast, target_of(arch), CachePlace("", kernel_key(ast), choice))


def _compile(ast: UOp, target: Target, place: CachePlace) -> CompiledKernel:
    return _emit(_lower(ast, target, place), target)


def _lower(ast: UOp, target: Target, place: CachePlace) -> Steps:
    from compiler.pipeline import steps  # noqa: PLC0415  # a hit must not load it

    stats.lowered += 1
    try:
        return steps(ast, target, choice=place.choice, text=place.text)
    except CompileError as error:
        if error.ast:
            raise
        raise CompileError(str(error), ast=place.text) from error


def _emit(made: Steps, target: Target) -> CompiledKernel:
    """Return the compiled kernel of finished steps. Raises the errors of `Target.emit`."""
    from hcq.program import KernelImage  # noqa: PLC0415

    code = target.emit(made.ir, target.machine(), OPT_LEVEL)
    shared_bytes, scratch_bytes = target.memory(code, made.name)
    args = slots(made.arguments)
    groups, threads = made.plan.launch()
    count = groups[0] * groups[1] * groups[2]
    image = KernelImage(
        name=made.name,
        arch=target.arch,
        code=code,
        args=args,
        kernarg_size=8 * len(args),
        shared_bytes=max(shared_bytes, made.dynamic_bytes),
        scratch_bytes=scratch_bytes,
        max_threads=threads[0] * threads[1] * threads[2],
        group_ns=max(1, round(made.plan.nanoseconds / count)),
    )
    return CompiledKernel(image, groups, threads)


def _show(ast: UOp, kernel: CompiledKernel, level: int, *, cached: bool) -> None:
    """Print a kernel if DEBUG is at least 1, or 3 for a kernel of the disk cache."""
    if level >= (3 if cached else 1):
        from compiler import show  # noqa: PLC0415  # rarely needed

        colour = sys.stderr.isatty() and not config().plain
        show.report(show.kernel(ast, kernel.image, level=level, cached=cached, colour=colour))
