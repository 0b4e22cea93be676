"""PTX modules on the emulated GPU: parse, translate, launch.

    module = load_ptx(text, arch="sm_90")
    kernel = module.kernel("vadd")
    result = launch(kernel, (4, 1, 1), (256, 1, 1), params, memory=memory)

Not here: grids of the emulated GPU, which bring descriptors and constant banks
(`emulator.nv.engines.grid`); the launch (`emulator.simt.launch`). Next: `syntax`, `flat` and `translate`, the steps.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import ctypes
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.nv.layouts.chips import CHIPS
from emulator.nv.ptx.flat import Flat, flatten
from emulator.nv.ptx.statements import PtxError, PtxSource, PtxVariable
from emulator.nv.ptx.syntax import parse
from emulator.nv.ptx.translate import translate
from emulator.simt import engine as engines
from emulator.simt.engine import Settings, TranslatedProgram
from emulator.simt.launch import LaunchResult
from emulator.simt.launch import launch as launch_program
from emulator.simt.work import LaunchOptions, LaunchWork
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.shared.memory import AddressSpace

Dim3 = tuple[int, int, int]
"""Numbers along x, y and z."""


@dataclass(slots=True)
class PtxKernel:
    """A kernel that can be launched, created by `PtxModule.kernel`."""

    name: str
    program: TranslatedProgram
    flat: Flat
    addresses: Mapping[str, int]
    """Name -> address of global and constant variables; it must contain those that the kernel names."""

    @property
    def param_bytes(self) -> int:
        """Size of its parameter block in bytes."""
        return self.flat.param_bytes

    @property
    def shared_bytes(self) -> int:
        """Size of its static shared memory in bytes."""
        return self.flat.shared_bytes

    @property
    def local_bytes(self) -> int:
        """Size of the local memory of one thread in bytes."""
        return self.flat.local_bytes


@dataclass(slots=True)
class PtxModule:
    """A parsed PTX module. Kernels are translated at their first use."""

    source: PtxSource
    arch: int
    """Number of the architecture for which it is translated: 90 stands for sm_90 and sm_90a."""
    settings: Settings
    _kernels: dict[tuple[str, bool], tuple[TranslatedProgram, Flat]] = field(default_factory=dict)
    """(name, whether it counts) -> the translated kernel."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _placed: dict[str, int] = field(default_factory=dict)
    """Variable -> its address, of those that `place` allocated."""
    _hosts: list[object] = field(default_factory=list)
    """The memory of those variables, which lives as long as the module."""

    @property
    def param_base(self) -> int:
        """The offset of the parameters in constant bank 0; their alignment counts from the start of the bank."""
        chip = CHIPS.get(f"sm_{self.arch}")
        return 0 if chip is None else chip.bank0.SIZE  # without a row no driver launches it

    def kernel(
        self, name: str, addresses: Mapping[str, int] | None = None, *, counts: bool = False
    ) -> PtxKernel:
        """Return a kernel that can be launched; it is translated at the first call. Threads may call this at once.

        `addresses` are those of its global variables; without them, `place` must have allocated the variables before the
        launch. With `counts` the kernel counts what it executes. Raises `UsageError` for an unknown name, and `PtxError`,
        with the line, for what is not supported.
        """
        key = name, counts
        with self._lock:
            if key not in self._kernels:
                flat = flatten(self.source, name, self.param_base)
                engine = engines.engine(self.settings)
                translation = translate(engine.library, flat, arch=self.arch, counts=counts)
                self._kernels[key] = (TranslatedProgram(engine, translation), flat)
        program, flat = self._kernels[key]
        return PtxKernel(name, program, flat, self._placed if addresses is None else addresses)

    def names(self) -> list[str]:
        """Return the names of the module's kernels; device functions are not among them."""
        return [f.name for f in self.source.functions.values() if f.entry]

    def place(self, memory: AddressSpace) -> dict[str, int]:
        """Allocate and initialise the module's global and constant variables, and map them in `memory`.

        Return name -> address. The host memory lives as long as the module. Raises `PtxError` for a variable that is declared
        .extern, and for an initial value that refers to one without an address.
        """
        globals_ = [v for v in self.source.variables.values() if v.space in ("global", "const")]
        for variable in globals_:
            if variable.extern:
                raise PtxError(variable.line, f"{variable.name} is .extern: no definition was found")
            align = max(variable.align, 16)
            buffer = ctypes.create_string_buffer(max(variable.size, 1) + align)
            self._hosts.append(buffer)
            at = -(-ctypes.addressof(buffer) // align) * align
            self._placed[variable.name] = at
            memory.map(
                at,
                max(variable.size, 1),
                label=f".{variable.space} {variable.name}",
                writable=variable.space == "global",
            )
        for variable in globals_:
            data = initial_bytes(variable, self._placed)
            ctypes.memmove(self._placed[variable.name], data, len(data))
        return dict(self._placed)


def initial_bytes(variable: PtxVariable, addresses: Mapping[str, int]) -> bytes:
    """Return the initial contents of a global variable, zeros if it has none.

    `addresses` contains those of other variables that it refers to. Raises `PtxError` if one is missing.
    """
    data = bytearray(variable.init) or bytearray(variable.size)
    for at, symbol, addend in variable.references:
        if symbol not in addresses:
            raise PtxError(variable.line, f"{variable.name} refers to {symbol}, which has no address")
        data[at : at + 8] = (addresses[symbol] + addend).to_bytes(8, "little")
    return bytes(data)


def load_ptx(text: str, *, arch: str, settings: Settings | None = None) -> PtxModule:
    """Parse a PTX module for `arch` ("sm_90", "sm_90a", ...), with `Settings()` if none are given.

    Raises `PtxError`, with the line, for unknown syntax, and `UsageError` for an unknown architecture or one that cannot
    run the module's target.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if match is None:
        raise UsageError(f"{arch!r} is no architecture; wanted: sm_80, sm_86, sm_90, sm_120, ...")
    source = parse(text)
    for word in source.target:
        wanted = re.fullmatch(r"sm_(\d+)([af]?)", word)
        if wanted and (int(wanted[1]) > int(match[1]) or (wanted[2] == "a" and arch != word)):
            raise UsageError(f"the module is for {word} and cannot run on {arch}")
    return PtxModule(source, int(match[1]), settings or Settings())


def launch(
    kernel: PtxKernel, grid: Dim3, block: Dim3, params: bytes, shared_bytes: int = 0, *, memory: AddressSpace, options: LaunchOptions | None = None,
    local_bytes: int | None = None, cluster: Dim3 | None = None,
) -> LaunchResult:  # fmt: skip
    """Run a kernel and return its result; a fault ends the launch and is contained in the result.

    `params` are the bytes of its parameters. `shared_bytes` is the dynamic shared memory, in addition to the static one.
    `local_bytes` defaults to the kernel's own need, and `cluster` to what its directives require. Raises `UsageError` as
    `work_of` and `emulator.simt.launch.launch` do.
    """
    if cluster is None and "reqnctapercluster" in kernel.flat.limits:
        x, y, z = (*kernel.flat.limits["reqnctapercluster"], 1, 1)[:3]
        cluster = (x, y, z)
    registers = kernel.flat.limits.get("maxnreg", (0,))[0]
    work = work_of(
        kernel,
        grid,
        block,
        params,
        shared_bytes,
        local_bytes=local_bytes,
        cluster=cluster,
        registers=registers,
    )
    return launch_program(kernel.program, work, memory, options)


def work_of(
    kernel: PtxKernel,
    grid: Dim3,
    block: Dim3,
    params: bytes,
    shared_bytes: int = 0,
    *,
    local_bytes: int | None = None,
    cluster: Dim3 | None = None,
    registers: int = 0,
) -> LaunchWork:
    """Return the description of a launch of a kernel, for `emulator.simt.launch.launch`.

    The parameters are those of `launch`; `registers` is the limit of a thread (.maxnreg), 0 for none. Raises `UsageError`
    if the kernel's directives forbid the shape of the launch, if `params` has the wrong length, or if a variable has no
    address.
    """
    flat = kernel.flat
    if len(params) != flat.param_bytes:
        raise UsageError(f"{kernel.name} takes {flat.param_bytes} bytes of parameters, saw {len(params)}")
    threads = block[0] * block[1] * block[2]
    for what, exact in (("reqntid", True), ("maxntid", False)):
        if what in flat.limits:
            limit = (*flat.limits[what], 1, 1)[:3]
            if (exact and block != limit) or threads > limit[0] * limit[1] * limit[2]:
                raise UsageError(f"{kernel.name} has .{what} {limit}, launched with blocks of {block}")
    _check_cluster(kernel, cluster)
    block_params = params.ljust(flat.table_offset, b"\0")
    for symbol in flat.symbols:
        if symbol not in kernel.addresses:
            raise UsageError(f"{kernel.name} uses {symbol}, which has no address")
        block_params += kernel.addresses[symbol].to_bytes(8, "little")
    return LaunchWork(
        grid=grid,
        block=block,
        params=block_params,
        shared_bytes=flat.shared_bytes + shared_bytes,
        dynamic_shared=shared_bytes,
        local_bytes=flat.local_bytes if local_bytes is None else local_bytes,
        cluster=cluster,
        registers=-(-registers // 8) * 8,
        addressed_params=flat.param_bytes if flat.addresses_params else 0,
        param_address=flat.param_address,
    )


def _check_cluster(kernel: PtxKernel, cluster: Dim3 | None) -> None:
    """Raise `UsageError` if the kernel's directives forbid the cluster; None is a launch without clusters."""
    limits, name = kernel.flat.limits, kernel.name
    if "reqnctapercluster" in limits:
        wanted = (*limits["reqnctapercluster"], 1, 1)[:3]
        if (cluster or (1, 1, 1)) != wanted:
            raise UsageError(
                f"{name} has .reqnctapercluster {wanted}, launched with clusters of {cluster or 'none'}"
            )
    if "explicitcluster" in limits and cluster is None:
        raise UsageError(f"{name} has .explicitcluster, launched without clusters; try cluster=(1, 1, 1)")
    if cluster is not None and "maxclusterrank" in limits:
        size, most = cluster[0] * cluster[1] * cluster[2], limits["maxclusterrank"][0]
        if size > most:
            raise UsageError(f"{name} has .maxclusterrank {most}, launched with clusters of {size} blocks")
