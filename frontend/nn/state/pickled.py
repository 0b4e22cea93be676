"""A reader of pickles that runs nothing: a stack machine over the opcodes that data needs.

It builds numbers, texts, bytes, lists, tuples, sets and dictionaries. A global is looked up by its full name
in a table of readers. A name that is not in the table, and an opcode that is not implemented here, is
refused. No module is imported and no function of a file is called.

Python's `pickletools` defines the opcodes, and decodes their arguments.

Not here: the file around a pickle. Next: `checkpoints`, which has the table of globals.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from typing import IO, Any, Final, Protocol, cast

from hcq.errors import UnsupportedError, UsageError


class PickleSource(Protocol):
    """The protocol of the source of a pickle: a file, or an object in memory with the same methods."""

    def read(self, n: int = ..., /) -> bytes:
        """Return the next n bytes, fewer at the end."""

    def readline(self) -> bytes:
        """Return the bytes up to and including the next line end."""


class PickledGlobal:
    """A global that a pickle may call: its name, and the function of its arguments that gives the result."""

    def __init__(self, name: str, read: Callable[[tuple[Any, ...]], Any]) -> None:
        self.name, self.read = name, read


class _Mark:
    """The class of `_MARK`, the item of the stack below a sequence of items."""


_MARK: Final = _Mark()
_VALUES: Final = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING",
    "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES",
    "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
})  # fmt: skip
"""Opcodes that push their argument."""
_CONSTANTS: Final[Mapping[str, Callable[[], Any]]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
    "MARK": lambda: _MARK,
}
"""Opcodes that push a new value."""
_KEYS: Final = (str, bytes, int, float, bool, type(None))


def plain_key(value: Any) -> Any:
    """Return a key of a dictionary: a number, a text, or a flat tuple of them.

    A nested tuple is refused, as its hash recurses as deep as the tuple. Raises `UnsupportedError`.
    """
    every = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(v, _KEYS) for v in every):
        raise UnsupportedError(f"a key of type {type(value).__name__}")
    return value


def shown(value: Any) -> str:
    """Return a value of a pickle as text for a message."""
    return repr(value) if isinstance(value, _KEYS) else f"a value of type {type(value).__name__}"


class _Machine:
    """The stack and the memo of one pickle."""

    def __init__(self, known: Mapping[str, Any], persistent: Callable[[Any], Any]) -> None:
        self.known, self.persistent = known, persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def items(self) -> list[Any]:
        """Remove the items above the last mark, and the mark; return the items.

        `IndexError` without a mark.
        """
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:  # IndexError without one
            at -= 1
        found = self.stack[at + 1 :]
        del self.stack[at:]
        return found

    def named(self, module: str, name: str) -> Any:
        """Return the reader of a global. Raises `UnsupportedError` for one that is not in the table."""
        full = f"{module}.{name}"
        if full not in self.known:
            raise UnsupportedError(
                f"the global {full} is refused: only tensors and plain data are read\n"
                "hint: save the state_dict() of the model, a dictionary of tensors"
            )
        return self.known[full]

    def called(self, target: Any, given: Any) -> Any:
        """Return the result of a global for its arguments.

        Raises `UnsupportedError` if it cannot be called.
        """
        if not isinstance(target, PickledGlobal):
            raise UnsupportedError(f"a call of a value of type {type(target).__name__}")
        if not isinstance(given, tuple):
            raise UsageError(f"{target.name} is called with a value of type {type(given).__name__}")
        return target.read(given)

    def add(self, pairs: list[Any]) -> None:
        """Store alternating keys and values in the dictionary at the top of the stack."""
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise UsageError(f"items are stored in a value of type {type(target).__name__}")
        target.update({plain_key(pairs[i]): pairs[i + 1] for i in range(0, len(pairs), 2)})

    def append(self, values: list[Any], kind: type[list[Any] | set[Any]]) -> None:
        """Add values to the list or the set, as `kind` says, at the top of the stack."""
        target = self.stack[-1]
        if not isinstance(target, kind):
            raise UsageError(f"items are added to a value of type {type(target).__name__}")
        if isinstance(target, set):
            target.update([plain_key(v) for v in values])
        else:
            target.extend(values)

    def step(self, name: str, arg: Any) -> None:
        """Carry out one opcode. Raises `UnsupportedError` for one that no plain data needs."""
        stack = self.stack
        if name in _VALUES:
            stack.append(arg)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in {"PUT", "BINPUT", "LONG_BINPUT"}:
            self.memo[arg] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in {"GET", "BINGET", "LONG_BINGET"}:
            stack.append(self.memo[arg])
        elif name in {"TUPLE1", "TUPLE2", "TUPLE3"}:
            count = int(name[-1])
            if len(stack) < count:
                raise UsageError(f"{count} items wanted, {len(stack)} are there")
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "TUPLE":
            stack.append(tuple(self.items()))
        elif name == "LIST":
            stack.append(self.items())
        elif name == "DICT":
            pairs = self.items()
            stack.append({})
            self.add(pairs)
        elif name == "FROZENSET":
            stack.append(frozenset([plain_key(v) for v in self.items()]))
        elif name == "APPEND":
            self.append([stack.pop()], list)
        elif name in {"APPENDS", "ADDITEMS"}:
            self.append(self.items(), list if name == "APPENDS" else set)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            self.add([key, value])
        elif name == "SETITEMS":
            self.add(self.items())
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self.items()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "GLOBAL":
            stack.append(self.named(*arg.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            own, module = stack.pop(), stack.pop()
            stack.append(self.named(module, own))
        elif name in {"REDUCE", "NEWOBJ"}:
            given, target = stack.pop(), stack.pop()
            stack.append(self.called(target, given))
        elif name == "BUILD":
            stack.pop()
            if not isinstance(stack[-1], dict):  # attributes of an OrderedDict are dropped
                raise UnsupportedError(f"attributes of a value of type {type(stack[-1]).__name__}")
        elif name == "BINPERSID":
            stack.append(self.persistent(stack.pop()))
        elif name not in {"PROTO", "FRAME"}:
            raise UnsupportedError(f"the opcode {name}")


def read(source: PickleSource, known: Mapping[str, Any], persistent: Callable[[Any], Any], what: str) -> Any:
    """Return the data of one pickle; the source is then at the first byte after it.

    `known` maps full names of globals to values, or to a `PickledGlobal`. `persistent` returns the value of a
    persistent id. Raises `UnsupportedError` for another global or opcode, which the message names, and
    `UsageError` for a malformed pickle; both messages start with `what`.
    """
    machine = _Machine(known, persistent)
    at: int | None = 0
    try:
        for opcode, arg, place in pickletools.genops(cast("IO[bytes]", source)):
            at = place
            if opcode.name == "STOP":
                break
            machine.step(opcode.name, arg)
        if len(machine.stack) != 1 or machine.stack[0] is _MARK:
            raise UsageError(f"{len(machine.stack)} values at its end")
    except UnsupportedError as error:
        raise UnsupportedError(f"{what}, byte {at}: {error}") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # what a wrong opcode leads to: a stack or memo without the item, an item of another type
        raise UsageError(f"{what} is malformed at byte {at}: {error or type(error).__name__}") from None
    return machine.stack[0]
