"""The library of helper functions that translated kernels call, each generated once as IR and found by name.

*Core* helpers are compiled once for a host and cached on disk; translated kernels call them by address. *Hot*
helpers are also inlined into optimised translations. All other helpers are compiled with each module that calls
them.

Not here: the helpers themselves (`emulator.simt.access`, `addresses`, `emulator.simt.atomics`, `lanes`,
`numeric`), compilation (`emulator.simt.engine`, `jit`). Next: `emulator.simt.engine`, which fills a library.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import functools
import inspect
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emulator.ir.ir_text import vector
from emulator.ir.strips import narrowed, strips
from emulator.ir.vector import CodeBuilder, Declarations, IrValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from emulator.ir.jit import HostCpu


@dataclass(frozen=True, slots=True)
class Sanitizers:
    """Optional checks that cost time; all are off by default."""

    shared_races: bool = False
    """Races in shared memory."""
    global_races: bool = False
    """Races in global memory."""
    uninitialised: bool = False
    """Reads of uninitialised memory."""
    partial_barriers: bool = False
    """Barriers that only some threads of a workgroup reach."""
    lane_races: bool = False
    """Races in shared memory between lanes of one warp, in addition to `shared_races`, for GPUs whose lanes need not run in step."""
    caches: bool = False
    """Missing cache maintenance. The engine records all accesses; the machine around it checks them."""

    @property
    def last_accesses(self) -> bool:
        """Whether the last accesses of each dword of global memory are recorded."""
        return self.global_races or self.caches

    @property
    def shadows(self) -> bool:
        """Whether global memory needs shadow memory: data of the checks for each byte or dword."""
        return self.last_accesses or self.uninitialised

    @property
    def any(self) -> bool:
        """Whether any check is on."""
        return self.shadows or self.shared_races or self.partial_barriers

    @classmethod
    def all(cls, *, in_step: bool = True) -> Sanitizers:
        """Return the settings with every check on; `lane_races` is off if lanes run in step."""
        return cls(
            shared_races=True,
            global_races=True,
            uninitialised=True,
            partial_barriers=True,
            lane_races=not in_step,
            caches=True,
        )


@dataclass(frozen=True, slots=True)
class Helper:
    """One function of the library."""

    name: str
    text: str
    """Its LLVM IR."""
    calls: tuple[str, ...]
    """The names of the functions that it calls."""
    core: bool
    hot: bool
    """As in `Library.define`."""


@dataclass(slots=True)
class Library:
    """The helpers for one warp width, one host and one set of sanitizers. `define` is thread-safe."""

    lanes: int
    """The number of lanes of a warp."""
    target: HostCpu
    checks: Sanitizers
    in_strips: bool = False
    """Whether code that is not optimised loops over strips of lanes (`strips`)."""
    sealed: bool = False
    """Whether the core library is compiled: later definitions are compiled into the modules that use them."""
    helpers: dict[str, Helper] = field(default_factory=dict)
    """Name -> helper, of those that were defined."""
    declarations: dict[str, str] = field(default_factory=dict)
    """Name of a function that helpers call -> its declaration in LLVM IR."""
    _writing: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)
    """Held while a helper is generated: the machines of a process share the library, each with its own thread."""

    @property
    def mask(self) -> str:
        """The IR type of a mask of lanes."""
        return f"i{self.lanes}"

    @property
    def bits(self) -> str:
        """The IR vector type with one bit for each lane."""
        return vector(self.lanes, "i1")

    def type(self, name: str) -> str:
        """Return the IR type of a short name: "mask"; "T each", a vector of T with one element for each lane; or an IR type."""
        each = name.removesuffix(" each")
        return self.mask if name == "mask" else name if each == name else self.v(each)

    def v(self, type_: str) -> str:
        """Return the IR vector type with one `type_` for each lane."""
        return vector(self.lanes, type_)

    def define(
        self,
        name: str,
        result: str,
        parameters: dict[str, str] | str,
        body: Callable[..., None],
        *,
        core: bool = False,
        hot: bool = False,
        small: bool = False,
        attributes: str = "",
    ) -> str:
        """Generate a helper with `body(code, *parameters)` unless one of that name exists; return the name.

        `result` is a name of `type` or "void". `parameters` maps names to IR types, or lists names of `type` in the order
        of `body`'s parameters ("ptr, i32 each, mask"). `core` and `hot` are as in the module's docstring. Hot helpers are
        inlined if the host has vectors of 512 bits, `small` ones on every host, both only without checks. `attributes`
        replaces the attribute group (`tail`). A helper without a result returns at the end of its body.
        """
        with self._writing:  # other threads see a helper only when it is complete
            if name in self.helpers:
                return name
            if isinstance(parameters, str):
                names = [*inspect.signature(body).parameters][1:]
                parameters = dict(zip(names, map(self.type, parameters.split(", ")), strict=True))
            result = self.type(result)
            core = core and not self.sealed
            hot = (small or (hot and self.target.gathers)) and not self.checks.any
            declarations = Declarations()
            code = CodeBuilder(declarations)
            values = [IrValue(type_, f"%{p}") for p, type_ in parameters.items()]
            self.helpers[name] = Helper(name, "", (), core=core, hot=hot)
            body(code, *values)
            if result == "void" and code.lines[-1:] != ["  ret void"]:
                code.ret()
            text = code.function(name, result, values, attributes or ("#1" if hot else "#0"))
            self.helpers[name] = Helper(name, text, tuple(declarations.declared), core=core, hot=hot)
            self.declarations.update(declarations.declared)
            self.declarations[name] = f"declare {result} @{name}({', '.join(parameters.values())})"
            return name

    def closure(self, names: Iterable[str], *, optimise: bool) -> tuple[list[Helper], list[Helper]]:
        """Return the helpers that a module which calls `names` must contain, and those that it imports from the core library.

        `optimise`: also include the hot helpers of the core library, for inlining.
        """
        inside: dict[str, Helper] = {}
        outside: dict[str, Helper] = {}
        todo = [n for n in names if n in self.helpers]
        while todo:
            helper = self.helpers[todo.pop()]
            if helper.name in inside or helper.name in outside:
                continue
            if helper.core and not (optimise and helper.hot):
                outside[helper.name] = helper
                continue
            inside[helper.name] = helper
            todo += [n for n in helper.calls if n in self.helpers]
        return list(inside.values()), list(outside.values())

    def module(self, bodies: str, called: dict[str, str], *, optimise: bool) -> tuple[str, list[str]]:
        """Return a module's text and the names of the core helpers that it imports.

        `bodies` is the text of its own functions. `called` maps the names that these call to declarations. `optimise`
        is as in `closure`.
        """
        inside, outside = self.closure(called, optimise=optimise)
        declared = dict(called)
        for helper in inside:
            for name in helper.calls:
                declared.setdefault(name, self.declarations[name])
        for helper in inside:
            declared.pop(helper.name, None)
        for helper in outside:
            declared[helper.name] = self.declarations[helper.name]
        texts = [*(h.text.replace("define ", "define internal ", 1) for h in inside), bodies]
        if self.in_strips and not optimise and self.strip < self.lanes:
            texts = [self._with_strips(text) for text in texts]
            for name, line in [item for item in declared.items() if item[0].startswith("llvm.")]:
                narrow = narrowed(name, self.lanes, self.strip)
                declared.setdefault(narrow, narrowed(line, self.lanes, self.strip))
        return "\n".join(["\n".join(declared.values()), *texts, *self.tail()]), [h.name for h in outside]

    @property
    def strip(self) -> int:
        """The number of lanes of 32 bits in a host register."""
        return self.target.vector_bits // 32

    def _with_strips(self, text: str) -> str:
        """Return the text of functions with loops over strips of lanes (`strips`)."""
        return _FUNCTION.sub(lambda found: strips(found[0], self.lanes, self.strip), text)

    def core_module(self) -> tuple[str, list[str]]:
        """Return the text of the core library and the names that it exports.

        Raises `AssertionError` if a core helper calls one that is not core.
        """
        core = [h for h in self.helpers.values() if h.core]
        names = {h.name for h in core}
        inside: dict[str, Helper] = {}
        for helper in core:
            for name in helper.calls:
                if name in self.helpers and name not in names:
                    inside[name] = self.helpers[name]
        if inside:
            raise AssertionError(f"core helpers call helpers outside the core: {sorted(inside)}")
        declared = {n: self.declarations[n] for h in core for n in h.calls if n not in names}
        text = "\n".join(
            ["\n".join(declared.values()), *(h.text.replace(" #1 {", " #0 {") for h in core), *self.tail()]
        )
        return text, sorted(names)

    def tail(self) -> list[str]:
        """Return the lines that end every module.

        Attribute groups: #0 common, #1 always inlined, #2 for code that changes the rounding mode. Metadata: branch
        weights !0 likely, !1 unlikely.
        """
        base = self.target.attributes
        return [
            f"attributes #0 = {{ {base} }}",
            f"attributes #1 = {{ alwaysinline {base} }}",
            f"attributes #2 = {{ noinline strictfp {base} }}",
            '!0 = !{!"branch_weights", i32 2000, i32 1}',
            '!1 = !{!"branch_weights", i32 1, i32 2000}',
        ]


def helper(
    name: str, types: str, *, result: str = "void", core: bool = False
) -> Callable[[Callable[..., None]], Callable[[Library], str]]:
    """Decorate `body(library, code, *parameters)`: the result, `define(library)`, defines the helper and returns its name.

    `types` lists the parameters' types by names of `Library.type` ("ptr, i32"); `core` is as in `Library.define`.
    """

    def wrap(body: Callable[..., None]) -> Callable[[Library], str]:
        @functools.wraps(body)
        def define(lib: Library) -> str:
            return lib.define(name, result, types, functools.partial(body, lib), core=core)

        return define

    return wrap


_FUNCTION = re.compile(r"^define (?![^\n]* #2 \{).*?^}\n", re.MULTILINE | re.DOTALL)
"""A function without attribute group #2: it does not change the host's rounding mode."""


@functools.lru_cache(maxsize=32)
def iota(lanes: int, step: int) -> tuple[int, ...]:
    """Return (0, step, 2 * step, ...), one number for each lane."""
    return tuple(step * i for i in range(lanes))
