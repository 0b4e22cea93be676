"""The flattening of a kernel: device functions are inlined, and variables get addresses.

A call is replaced by the callee's body with unique names. The parameters of a call become registers if all accesses agree
on offset and width, otherwise a part of local memory.

Not here: parsing (`syntax`). Next: `blocks`, basic blocks of the result.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from emulator.nv.ptx.statements import (
    TYPES,
    Args,
    Label,
    Mem,
    Not,
    Operand,
    Pair,
    PtxError,
    PtxFunction,
    PtxImm,
    PtxInstruction,
    PtxReg,
    PtxSource,
    Sym,
    Vec,
)
from emulator.simt.work import PARAM_WINDOW
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.nv.ptx.statements import PtxVariable

_MOST_INSTRUCTIONS = 200_000
"""The most instructions of a kernel with its functions inlined."""


@dataclass(slots=True)
class Flat:
    """A kernel without calls."""

    name: str
    params: dict[str, tuple[int, int]]
    """Name of a kernel parameter -> its byte offset and size."""
    param_bytes: int
    """Bytes of all parameters."""
    param_address: int = PARAM_WINDOW
    """Generic address of the first parameter."""
    statements: list[PtxInstruction | Label] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    """Name of a register -> its type."""
    shared: dict[str, int] = field(default_factory=dict)
    """Name of a shared variable -> its offset in shared memory."""
    shared_bytes: int = 0
    """Bytes of static shared memory."""
    dynamic: set[str] = field(default_factory=set)
    """Shared variables without a size, in dynamic shared memory; they start at `shared_bytes`."""
    local: dict[str, int] = field(default_factory=dict)
    """Name of a local variable -> its offset in a thread's local memory."""
    local_bytes: int = 0
    symbols: list[str] = field(default_factory=list)
    """Global and constant variables that it uses, in the order of the table of addresses after the parameters."""
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a .branchtargets list -> its labels."""
    limits: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Name of a performance directive, such as "maxntid" -> its numbers."""

    @property
    def addresses_params(self) -> bool:
        """Whether it converts addresses of its parameters to generic ones (cvta.param)."""
        return any(
            isinstance(s, PtxInstruction)
            and s.opcode == "cvta"
            and any(m.startswith("param") for m in s.modifiers)
            for s in self.statements
        )

    @property
    def table_offset(self) -> int:
        """Byte offset of the table of addresses of `symbols`, after the parameters."""
        return -(-self.param_bytes // 8) * 8


class _Flattener:
    """The flattening of one kernel; `run` may be called once."""

    def __init__(self, source: PtxSource, kernel: PtxFunction, param_base: int) -> None:
        self._source = source
        self._kernel = kernel
        params, offset = {}, param_base
        for variable in kernel.params:
            offset = -(-offset // variable.align) * variable.align
            params[variable.name] = (offset - param_base, variable.size)
            offset += variable.size
        address = PARAM_WINDOW + param_base
        self.flat = Flat(kernel.name, params, offset - param_base, address, limits=dict(kernel.limits))
        self._instances = 0
        self._aliases: dict[str, str] = {}
        self._call_params: dict[str, PtxVariable] = {}

    def run(self) -> Flat:
        self._function(self._kernel, "", {}, None, ())
        self._promote()
        self._place_shared()
        return self.flat

    def _function(
        self,
        function: PtxFunction,
        prefix: str,
        names: dict[str, str],
        after: str | None,
        stack: tuple[str, ...],
    ) -> None:
        """Append a function's body.

        `prefix` makes its names unique; `names` maps its parameters to variables or registers of the caller. `after` is
        the label at which the caller continues, None in the kernel; `stack` are the functions that are being inlined.
        """
        if function.name in stack:
            raise PtxError(function.line, f"{function.name} is recursive: that is not supported")
        stack = (*stack, function.name)
        names = dict(names)
        for name, type_ in function.registers.items():
            names.setdefault(name, prefix + name)
            self.flat.registers.setdefault(names[name], type_)
        for name, variable in function.variables.items():
            names[name] = prefix + name
            if variable.space == "local":
                self._local(names[name], variable)
            elif variable.space == "param":
                self._call_params[names[name]] = variable
            elif variable.space == "shared":
                names[name] = name
                self._source.variables.setdefault(name, variable)
            else:
                raise PtxError(variable.line, f".{variable.space} variable {name} inside a function")
        labels = {s.name for s in function.body if isinstance(s, Label)}
        names |= {label: prefix + label for label in labels}
        for name, items in function.targets.items():
            names[name] = prefix + name
            self.flat.targets[prefix + name] = tuple(prefix + item for item in items)
        for statement in function.body:
            if len(self.flat.statements) > _MOST_INSTRUCTIONS:
                raise PtxError(
                    function.line,
                    f"{self.flat.name} has more than {_MOST_INSTRUCTIONS} instructions with its functions inlined",
                )
            if isinstance(statement, Label):
                self.flat.statements.append(Label(prefix + statement.name, statement.line))
                continue
            renamed = _rename(statement, names)
            if renamed.opcode == "call":
                self._call(renamed, stack)
            elif renamed.opcode == "ret" and after is not None:
                self._append(renamed, "bra", (), (Sym(after),))
            else:
                self.flat.statements.append(renamed)

    def _append(
        self, like: PtxInstruction, opcode: str, modifiers: tuple[str, ...], operands: tuple[Operand, ...]
    ) -> None:
        self.flat.statements.append(
            PtxInstruction(opcode, modifiers, operands, like.guard, like.negated, like.line, like.text)
        )  # fmt: skip

    def _call(self, call: PtxInstruction, stack: tuple[str, ...]) -> None:
        """Append a call: the moves of its arguments, the body, the moves of its results. Raises `PtxError`."""
        operands = list(call.operands)
        returned = operands.pop(0) if isinstance(operands[0], Args) else Args(())
        target = operands.pop(0)
        given = operands.pop(0) if operands else Args(())
        if (
            not isinstance(target, Sym)
            or operands
            or not isinstance(returned, Args)
            or not isinstance(given, Args)
        ):
            raise PtxError(call.line, f"indirect calls are not supported: {call.text}")
        callee = self._source.functions.get(target.name)
        if callee is None or not callee.body:
            raise PtxError(call.line, f"call of {target.name}, which this module does not define")
        if len(returned.items) != len(callee.returns) or len(given.items) != len(callee.params):
            raise PtxError(
                call.line,
                f"call of {target.name} with {len(given.items)} arguments; it takes {len(callee.params)}",
            )
        self._instances += 1
        prefix = f"{callee.name}#{self._instances}:"
        after, skip = f"{prefix}after", f"{prefix}skip"
        names: dict[str, str] = {}
        for variable, item in zip(callee.params, given.items, strict=True):
            names[variable.name] = self._argument(call, variable, item, prefix)
        for variable, item in zip(callee.returns, returned.items, strict=True):
            if not isinstance(item, Sym | PtxReg):
                raise PtxError(call.line, f"cannot return into {item}")
            names[variable.name] = item.name if isinstance(item, Sym) else prefix + variable.name
        if call.guard is not None:
            self.flat.statements.append(
                PtxInstruction("bra", (), (Sym(skip),), call.guard, not call.negated, call.line, call.text)
            )
        self._function(callee, prefix, names, after, stack)
        self.flat.statements.append(Label(after, call.line))
        for variable, item in zip(callee.returns, returned.items, strict=True):
            if isinstance(item, PtxReg):
                self._append_plain(
                    call, "mov", (f"b{item.bits}",), (item, PtxReg(prefix + variable.name, variable.type))
                )
        self.flat.statements.append(Label(skip, call.line))

    def _append_plain(
        self, like: PtxInstruction, opcode: str, modifiers: tuple[str, ...], operands: tuple[Operand, ...]
    ) -> None:
        self.flat.statements.append(
            PtxInstruction(opcode, modifiers, operands, None, False, like.line, like.text)
        )

    def _argument(self, call: PtxInstruction, variable: PtxVariable, item: Operand, prefix: str) -> str:
        """Append the move of an argument; return the name of the parameter in the body."""
        if variable.space == "reg":
            reg = PtxReg(prefix + variable.name, variable.type)
            self.flat.registers[reg.name] = variable.type
            self._append_plain(call, "mov", (f"b{reg.bits}",), (reg, item))
            return reg.name
        if isinstance(item, Sym) and item.name in self._call_params:
            return item.name
        name = prefix + variable.name
        self._call_params[name] = variable
        if not isinstance(item, PtxReg | PtxImm):
            raise PtxError(call.line, f"cannot pass {item}")
        self._append_plain(call, "st", ("param", f"b{TYPES[variable.type]}"), (Mem(Sym(name)), item))
        return name

    def _local(self, name: str, variable: PtxVariable) -> None:
        at = -(-self.flat.local_bytes // variable.align) * variable.align
        self.flat.local[name] = at
        self.flat.local_bytes = at + variable.size

    def _promote(self) -> None:
        """Replace parameters of calls by registers, or by local memory if their accesses differ."""
        pieces: dict[str, set[tuple[int, int]]] = {name: set() for name in self._call_params}
        whole: set[str] = set()
        for statement in self.flat.statements:
            if isinstance(statement, PtxInstruction):
                for operand in statement.operands:
                    if (
                        isinstance(operand, Mem)
                        and isinstance(operand.base, Sym)
                        and operand.base.name in pieces
                    ):
                        pieces[operand.base.name] |= set(_pieces(statement, operand))
                    elif isinstance(operand, Sym) and operand.name in pieces:
                        whole.add(operand.name)
        for name, variable in self._call_params.items():
            ordered = sorted(pieces[name])
            apart = all(a + n // 8 <= b for (a, n), (b, _) in pairwise(ordered))
            if name in whole or not apart:
                self._local(name, variable)
            else:
                self.flat.registers |= {f"{name}+{at}": f"b{bits}" for at, bits in ordered}
        self.flat.statements = [
            self._promoted(s) if isinstance(s, PtxInstruction) else s for s in self.flat.statements
        ]

    def _promoted(self, statement: PtxInstruction) -> PtxInstruction:
        """Return an access to a parameter of a call as moves of registers, or in local memory if it is there."""
        for operand in statement.operands:
            if not (
                isinstance(operand, Mem)
                and isinstance(operand.base, Sym)
                and operand.base.name in self._call_params
            ):
                continue
            if operand.base.name in self.flat.local:
                modifiers = tuple("local" if m.startswith("param") else m for m in statement.modifiers)
                return PtxInstruction(
                    statement.opcode,
                    modifiers,
                    statement.operands,
                    statement.guard,
                    statement.negated,
                    statement.line,
                    statement.text,
                )
            found = _pieces(statement, operand)
            inside: list[Operand] = [PtxReg(f"{operand.base.name}+{at}", f"b{bits}") for at, bits in found]
            outside = statement.operands[0 if statement.opcode == "ld" else 1]
            there: Operand = inside[0] if len(inside) == 1 else Vec(tuple(inside))
            sides = (outside, there) if statement.opcode == "ld" else (there, outside)
            modifiers = tuple(m for m in statement.modifiers if not m.startswith("param"))
            return PtxInstruction(
                "move_param",
                modifiers,
                sides,
                statement.guard,
                statement.negated,
                statement.line,
                statement.text,
            )
        return statement

    def _place_shared(self) -> None:
        """Place the shared variables that the kernel uses; note its global and its dynamic ones."""
        used: dict[str, None] = {}
        for statement in self.flat.statements:
            if isinstance(statement, PtxInstruction):
                for operand in statement.operands:
                    for symbol in _symbols(operand):
                        used.setdefault(symbol)
        at = 0
        for name in used:
            variable = self._source.variables.get(name)
            if variable is None:
                continue
            if variable.space in ("global", "const"):
                self.flat.symbols.append(name)
            elif variable.size == 0:
                self.flat.dynamic.add(name)
            else:
                at = -(-at // variable.align) * variable.align
                self.flat.shared[name] = at
                at += variable.size
        align = max([16, *(self._source.variables[n].align for n in self.flat.dynamic)])
        self.flat.shared_bytes = -(-at // align) * align if self.flat.dynamic else at
        self.flat.shared |= dict.fromkeys(self.flat.dynamic, self.flat.shared_bytes)


def _pieces(statement: PtxInstruction, operand: Mem) -> list[tuple[int, int]]:
    bits = TYPES[statement.modifiers[-1]]
    count = next((int(m[1:]) for m in statement.modifiers if m in ("v2", "v4", "v8")), 1)
    return [(operand.offset + i * bits // 8, bits) for i in range(count)]


def _symbols(operand: Operand) -> Iterator[str]:
    """Yield the variables, functions and labels that an operand names."""
    match operand:
        case Sym(name):
            yield name
        case Mem(Sym(name)):
            yield name
        case Vec(items) | Args(items):
            for item in items:
                yield from _symbols(item)
        case _:
            return


def _rename(statement: PtxInstruction, names: dict[str, str]) -> PtxInstruction:
    """Return a statement with the registers and symbols that `names` maps renamed."""

    def fix(operand: Operand) -> Operand:
        match operand:
            case PtxReg(name, type_):
                return PtxReg(names.get(name, name), type_)
            case Sym(name, offset):
                return Sym(names.get(name, name), offset)
            case Mem(base, offset, coordinates) if base is not None:
                inner = fix(base)
                assert isinstance(inner, PtxReg | Sym)
                return Mem(inner, offset, tuple(map(fix, coordinates)))
            case Vec(items):
                return Vec(tuple(map(fix, items)))
            case Args(items):
                return Args(tuple(map(fix, items)))
            case Pair(first, second):
                return Pair(fix(first), fix(second))
            case Not(reg):
                return Not(PtxReg(names.get(reg.name, reg.name), reg.type))
            case _:
                return operand

    guard = (
        PtxReg(names.get(statement.guard.name, statement.guard.name), statement.guard.type)
        if statement.guard
        else None
    )
    return PtxInstruction(
        statement.opcode,
        statement.modifiers,
        tuple(map(fix, statement.operands)),
        guard,
        statement.negated,
        statement.line,
        statement.text,
    )


def flatten(source: PtxSource, name: str, param_base: int = 0) -> Flat:
    """Return kernel `name` without calls, with an address for each variable.

    `param_base` is the byte offset of its parameters in constant bank 0; their alignment counts from the bank's start.

    Raises `UsageError` if the module has no such kernel. Raises `PtxError` for recursion, an indirect call, a call of an
    undefined function or with a wrong number of arguments, a global variable inside a function, and a kernel that is too
    long.
    """
    kernel = source.functions.get(name)
    if kernel is None or not kernel.entry:
        known = [f.name for f in source.functions.values() if f.entry]
        raise UsageError(f"no kernel {name!r} in this module; it has {known}")
    return _Flattener(source, kernel, param_base).run()
