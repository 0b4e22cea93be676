"""The translator of a small subset of Python, in which the command processor is written, to LLVM IR text.

Every value is an unsigned 64-bit integer. The subset has `while` with `break` and `continue`,
`if`/`elif`/`else`, `a if c else b`, `and`/`or`/`not` in conditions, `+ - * // % & | ^ << >>` and comparisons,
calls of other functions of the module, `min` and `max` of two values, named constants, the fields of records
and packets (`queue.read` for a parameter `queue: Queue` or a local `queue = view(Queue, at)`), and the
functions of `drivers.cpu.primitives`. Arithmetic wraps at 64 bits. The result is undefined for a divisor of 0
and for a shift by 64 or more. Other Python raises `NativeSyntaxError` with its source text. Locals become
allocas, which LLVM's mem2reg turns into values. A function without `return` returns 0.

The resulting module has no data, no external symbol and no relocation of its code.

Not here: the IR text of primitives that are functions (`primitives`). Next: `processor`, the program;
`image`, which compiles it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

from drivers.cpu.layouts import Record, place_of
from drivers.cpu.primitives import MACHINES, intrinsics
from hcq.layout import BitStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FunctionType

BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "udiv", ast.Mod: "urem",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "lshr",
}  # fmt: skip
COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "ult", ast.LtE: "ule", ast.Gt: "ugt", ast.GtE: "uge",
}  # fmt: skip
STORES = {"store8": 8, "store32": 32, "store64": 64}
"""Name of a primitive -> bits that it stores."""


class NativeSyntaxError(SyntaxError):
    """A function uses Python outside the subset; the message has the line and the source."""


def translate(functions: Sequence[Callable[..., object]], machine: str) -> str:
    """Return the IR text of a module with these functions, each under its own name, for `machine`.

    Raises `NativeSyntaxError` if a function is outside the subset, or for a machine that is not in
    `MACHINES`.
    """
    if machine not in MACHINES:
        supported = ", ".join(MACHINES)
        raise NativeSyntaxError(f"no spin-loop hint is known for {machine}; supported: {supported}")
    arity = {f.__name__: len(inspect.signature(f).parameters) for f in functions}
    parts = [intrinsics(machine)]
    parts += [_Function(f, arity).text() for f in functions]  # type: ignore[arg-type]  # all are plain functions
    # internal, so that calls need no relocation; "used", so that each keeps a symbol
    used = ", ".join(f"ptr @{name}" for name in arity)
    parts.append(
        f'@llvm.compiler.used = appending global [{len(arity)} x ptr] [{used}], section "llvm.metadata"'
    )
    # these attributes keep read-only data and calls of libc out of the object
    parts.append('attributes #0 = { nounwind "no-jump-tables"="true" "no-builtins" }')
    return "\n".join(parts) + "\n"


class _Function:
    """The translation of one function."""

    def __init__(self, function: FunctionType, arity: Mapping[str, int]) -> None:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if not isinstance(node, ast.FunctionDef):
            raise NativeSyntaxError(f"{function.__name__} is not a function definition")
        self.name = function.__name__
        self.first_line = function.__code__.co_firstlineno
        self.scope: Mapping[str, Any] = function.__globals__
        self.arity = arity
        self.count = 0
        self.locals: set[str] = set()
        self.kinds: dict[str, type[Record | BitStruct]] = {}
        self.allocas: list[str] = []
        self.body: list[str] = []
        self.loops: list[tuple[str, str]] = []
        self.parameters: list[str] = []
        for argument in node.args.args:
            self.parameters.append(f"i64 %{argument.arg}.in")
            self.declare(argument.arg)
            self.body.append(f"store i64 %{argument.arg}.in, ptr %{argument.arg}")
            if argument.annotation is not None and (kind := self.layout(argument.annotation)):
                self.kinds[argument.arg] = kind
        self.block(node.body)
        self.body.append("ret i64 0")

    def text(self) -> str:
        """Return the IR text of the function."""
        head = f"define internal i64 @{self.name}({', '.join(self.parameters)}) #0 {{"
        return "\n".join([head, *self.allocas, *self.body, "}"])

    def error(self, node: ast.AST, why: str) -> NativeSyntaxError:
        """Return the error for a syntax node."""
        line = self.first_line + getattr(node, "lineno", 1) - 1
        return NativeSyntaxError(f"{self.name}, line {line}: {why}: {ast.unparse(node)}")

    def declare(self, name: str) -> None:
        """Declare a local variable with the initial value 0, unless it is declared already."""
        if name not in self.locals:
            self.locals.add(name)
            self.allocas += [f"%{name} = alloca i64", f"store i64 0, ptr %{name}"]

    def layout(self, node: ast.expr) -> type[Record | BitStruct] | None:
        """Return the record or packet class that an expression names; None if it names none."""
        kind = self.scope.get(node.id) if isinstance(node, ast.Name) else None
        return kind if isinstance(kind, type) and issubclass(kind, (Record, BitStruct)) else None

    def result(self, text: str) -> str:
        """Append an instruction and return the name of its result."""
        self.count += 1
        self.body.append(f"%t{self.count} = {text}")
        return f"%t{self.count}"

    def label(self) -> str:
        """Return a new label."""
        self.count += 1
        return f"b{self.count}"

    def jump(self, to: str, then: str | None = None) -> None:
        """End the block with a jump, and begin the block `then`; None: an unreachable block."""
        self.body += [f"br label %{to}", f"{then or self.label()}:"]

    # statements

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Translate statements in order."""
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Translate one statement."""
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass  # a docstring, or `pass`
            case ast.Expr(value=ast.Call() as value):
                self.value(value)
            case ast.Return(value=value):
                self.body += [f"ret i64 {self.value(value) if value else '0'}", f"{self.label()}:"]
            case ast.Assign(targets=[target], value=value):
                self.assign(target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                self.assign(target, ast.copy_location(ast.BinOp(_loaded(target), op, value), node))
            case ast.If():
                self.if_(node)
            case ast.While(orelse=[]):
                self.while_(node)
            case ast.Break() if self.loops:
                self.jump(self.loops[-1][1])
            case ast.Continue() if self.loops:
                self.jump(self.loops[-1][0])
            case _:
                raise self.error(node, "not in the native subset")

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Translate a store to a local variable, or to a field that is a whole word."""
        if not isinstance(target, ast.Name):
            number = self.value(value)
            self.body.append(f"store atomic i64 {number}, ptr {self.word(target)} monotonic, align 8")
            return
        kind = None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "view":
            kind = self.layout(value.args[0])
        if target.id in self.locals and self.kinds.get(target.id) is not kind:
            raise self.error(target, "a name cannot change its layout; use another name")
        number = self.value(value)
        self.declare(target.id)
        if kind:
            self.kinds[target.id] = kind
        self.body.append(f"store i64 {number}, ptr %{target.id}")

    def if_(self, node: ast.If) -> None:
        """Translate `if`."""
        yes, no, end = self.label(), self.label(), self.label()
        self.branch(node.test, yes, no)
        self.body.append(f"{yes}:")
        self.block(node.body)
        self.jump(end, no)
        self.block(node.orelse)
        self.jump(end, end)

    def while_(self, node: ast.While) -> None:
        """Translate `while`."""
        head, body, end = self.label(), self.label(), self.label()
        self.jump(head, head)
        self.branch(node.test, body, end)
        self.body.append(f"{body}:")
        self.loops.append((head, end))
        self.block(node.body)
        self.loops.pop()
        self.jump(head, end)

    # expressions

    def branch(self, node: ast.expr, yes: str, no: str) -> None:
        """Jump to label `yes` if the condition holds, else to `no`."""
        match node:
            case ast.BoolOp(op=op, values=[*firsts, last]):
                for value in firsts:
                    more = self.label()
                    self.branch(value, *((more, no) if isinstance(op, ast.And) else (yes, more)))
                    self.body.append(f"{more}:")
                self.branch(last, yes, no)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.branch(operand, no, yes)
            case _:
                bit = self.bit(node)
                self.body.append(f"br i1 {bit}, label %{yes}, label %{no}")

    def bit(self, node: ast.expr) -> str:
        """Return an i1 operand: the comparison, or whether the value is not 0."""
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
                return self.result(f"icmp {COMPARE[type(op)]} i64 {self.value(left)}, {self.value(right)}")
            case _:
                return self.result(f"icmp ne i64 {self.value(node)}, 0")

    def value(self, node: ast.expr) -> str:
        """Return the i64 operand that holds an expression's value."""
        match node:
            case ast.Constant(value=int(number)):
                return self.constant(node, number)
            case ast.Name(id=name) if name in self.locals:
                return self.result(f"load i64, ptr %{name}")
            case ast.Name(id=name) if isinstance(self.scope.get(name), int):
                return self.constant(node, self.scope[name])
            case ast.Attribute(value=ast.Name(id=name)) if name in self.kinds:
                return self.field(node)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name not in self.locals:
                return self.constant(node, getattr(self.scope.get(name), attribute, None))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                a = self.value(left)
                return self.result(f"{BINARY[type(op)]} i64 {a}, {self.value(right)}")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.result(f"sub i64 0, {self.value(operand)}")
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self.result(f"xor i64 {self.value(operand)}, -1")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.result(f"zext i1 {self.result(f'xor i1 {self.bit(operand)}, true')} to i64")
            case ast.Compare():
                return self.compared(node)
            case ast.IfExp():
                return self.if_else(node)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self.call(node, name, arguments)
            case _:
                raise self.error(node, "not in the native subset")

    def constant(self, node: ast.AST, number: object) -> str:
        """Return a constant as an operand. Raises `NativeSyntaxError` if it does not fit 64 bits."""
        if not isinstance(number, int):
            raise self.error(node, "not a number or a field")
        if not -(1 << 63) <= number < 1 << 64:
            raise self.error(node, "the number does not fit 64 bits")
        return str(int(number))

    def compared(self, node: ast.Compare) -> str:
        """Return the operand of a comparison's value, 0 or 1."""
        if len(node.ops) != 1 or type(node.ops[0]) not in COMPARE:
            raise self.error(node, "not in the native subset")
        return self.result(f"zext i1 {self.bit(node)} to i64")

    def if_else(self, node: ast.IfExp) -> str:
        """Translate `a if c else b`; only the chosen value is evaluated."""
        yes, no, end = self.label(), self.label(), self.label()
        slot = f"%s{self.count}"
        self.allocas.append(f"{slot} = alloca i64")
        self.branch(node.test, yes, no)
        for label, chosen in ((yes, node.body), (no, node.orelse)):
            self.body.append(f"{label}:")
            self.body += [f"store i64 {self.value(chosen)}, ptr {slot}", f"br label %{end}"]
        self.body.append(f"{end}:")
        return self.result(f"load i64, ptr {slot}")

    def place(self, node: ast.expr) -> tuple[str, int, int]:
        """Return (`ptr` operand to the word of `name.field`, lowest bit of the field, width in bits)."""
        match node:
            case ast.Attribute(value=ast.Name(id=name) as record, attr=attribute) if name in self.kinds:
                where = place_of(self.kinds[name], attribute)
                if where is None:
                    raise self.error(node, f"{self.kinds[name].__name__} has no such field within one word")
                at = self.result(f"add i64 {self.value(record)}, {where.offset}")
                return self.result(f"inttoptr i64 {at} to ptr"), where.lo, where.width
            case _:
                raise self.error(node, "not a field of a record or packet")

    def word(self, node: ast.expr) -> str:
        """Return a `ptr` operand to a field that must be a whole word."""
        pointer, _, width = self.place(node)
        if width != 64:
            raise self.error(node, "only a field of 64 bits can be stored to, or be used atomically")
        return pointer

    def field(self, node: ast.expr) -> str:
        """Return the operand of a field's value."""
        pointer, lo, width = self.place(node)
        value = self.result(f"load atomic i64, ptr {pointer} monotonic, align 8")
        if lo:
            value = self.result(f"lshr i64 {value}, {lo}")
        return value if lo + width == 64 else self.result(f"and i64 {value}, {(1 << width) - 1}")

    def call(self, node: ast.Call, name: str, arguments: Sequence[ast.expr]) -> str:
        """Translate a primitive, `min`, `max`, or a call of another function of the module."""
        if name in self.arity:
            if len(arguments) != self.arity[name]:
                raise self.error(node, f"{name} takes {self.arity[name]} arguments")
            return self.result(f"call i64 @{name}({self.passed(arguments)})")
        match name, arguments:
            case ("acquire", [field]):
                return self.result(f"load atomic i64, ptr {self.word(field)} seq_cst, align 8")
            case ("release", [field, value]):
                number = self.value(value)
                self.body.append(f"store atomic i64 {number}, ptr {self.word(field)} release, align 8")
            case ("fetch_add" | "swap", [field, value]):
                op = "add" if name == "fetch_add" else "xchg"
                number = self.value(value)
                return self.result(f"atomicrmw {op} ptr {self.word(field)}, i64 {number} seq_cst")
            case ("cas", [field, old, new]):
                a, b = self.value(old), self.value(new)
                text = f"cmpxchg ptr {self.word(field)}, i64 {a}, i64 {b} seq_cst seq_cst"
                swapped = self.result(f"extractvalue {{i64, i1}} {self.result(text)}, 1")
                return self.result(f"zext i1 {swapped} to i64")
            case ("address", [field]):
                return self.result(f"ptrtoint ptr {self.place(field)[0]} to i64")
            case ("base", [ast.Name(id=record)]) if record in self.kinds:
                return self.result(f"load i64, ptr %{record}")
            case ("view", [kind, at]) if self.layout(kind):
                return self.value(at)
            case ("stack", [ast.Constant(value=int(size))]):
                self.count += 1
                self.allocas.append(f"%s{self.count} = alloca [{size} x i8], align 16")
                return self.result(f"ptrtoint ptr %s{self.count} to i64")
            case ("load64", [at]):
                return self.result(f"load i64, ptr {self.pointer(at)}, align 1")
            case ("store8" | "store32" | "store64", [at, value]):
                self.store(STORES[name], at, value)
            case ("pause", []):
                self.body.append("call void @pause()")
            case ("float_mode", []):
                return self.result("call i64 @float_mode()")
            case ("set_float_mode", [mode]):
                self.body.append(f"call void @set_float_mode({self.passed([mode])})")
            case ("on_stack", [_, _, _, _, _, _]):
                return self.result(f"call i64 @on_stack({self.passed(arguments)})")
            case ("call", [function, *rest]):
                target = self.pointer(function)
                return self.result(f"call i64 {target}({self.passed(rest)})")
            case ("syscall", [function, *rest]):
                target = self.pointer(function)
                return self.result(f"call i64 (i64, ...) {target}({self.passed(rest)})")
            case ("min" | "max", [left, right]):
                a = self.value(left)
                b = self.value(right)
                less = self.result(f"icmp {'ult' if name == 'min' else 'ugt'} i64 {a}, {b}")
                return self.result(f"select i1 {less}, i64 {a}, i64 {b}")
            case _:
                raise self.error(node, "not a function of the module, nor a primitive with such arguments")
        return "0"

    def passed(self, arguments: Sequence[ast.expr]) -> str:
        """Evaluate arguments and return them as IR text."""
        return ", ".join(f"i64 {self.value(argument)}" for argument in arguments)

    def pointer(self, node: ast.expr) -> str:
        """Return a `ptr` operand for the address that is the value of an expression."""
        return self.result(f"inttoptr i64 {self.value(node)} to ptr")

    def store(self, width: int, at: ast.expr, value: ast.expr) -> None:
        """Translate a store of the low `width` bits of a value, at an address of any alignment."""
        pointer, number = self.pointer(at), self.value(value)
        if width < 64:
            number = self.result(f"trunc i64 {number} to i{width}")
        self.body.append(f"store i{width} {number}, ptr {pointer}, align 1")


def _loaded(target: ast.expr) -> ast.expr:
    """Return the target of an assignment as an expression that reads it."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    return target
