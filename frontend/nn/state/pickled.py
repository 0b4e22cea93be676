"""A reader of pickles that runs nothing: a stack machine over the opcodes that data needs.

It builds numbers, texts, bytes, lists, tuples, sets and dictionaries. A global is looked up in a table of
readers by its full name; a name that is not in the table, and an opcode that is not known here, is refused.
No module is imported and no function of a file is called.

The opcodes are those of Python's `pickletools`, which decodes their arguments.

Not here: the table of globals and the file around a pickle (`checkpoints`).
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from typing import IO, Any, Final, Protocol, cast

from hcq.errors import UnsupportedError, UsageError


class PickleSource(Protocol):
    """What a pickle is read from: a file, or memory that reads like one."""

    def read(self, n: int = ..., /) -> bytes:
        """Return the next n bytes."""

    def readline(self) -> bytes:
        """Return the bytes up to the next line's end."""


class PickledGlobal:
    """A global that may be called: the function that reads its arguments."""

    def __init__(self, name: str, read: Callable[[tuple[Any, ...]], Any]) -> None:
        self.name, self.read = name, read


class _Mark:
    """The class of `_MARK`, which stands on the stack before several items."""


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

    The hash of a nested tuple would recurse as deep as the file says.
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
        """Remove and return what stands above the last mark, and the mark."""
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
        """Return the result of a known global for its arguments."""
        if not isinstance(target, PickledGlobal):
            raise UnsupportedError(f"a call of a value of type {type(target).__name__}")
        if not isinstance(given, tuple):
            raise UsageError(f"{target.name} is called with a value of type {type(given).__name__}")
        return target.read(given)

    def add(self, pairs: list[Any]) -> None:
        """Store keys and values, one after the other, in the dictionary at the top."""
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise UsageError(f"items are stored in a value of type {type(target).__name__}")
        target.update({plain_key(pairs[i]): pairs[i + 1] for i in range(0, len(pairs), 2)})

    def append(self, values: list[Any], kind: type[list[Any] | set[Any]]) -> None:
        """Add values to the list or the set at the top."""
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
    """Return the data of one pickle, and leave the source behind it.

    `known` maps full names of globals to values, or to a `PickledGlobal`. `persistent` returns the value of a
    persistent id. Raises `UnsupportedError` for anything else, by name, and `UsageError` for a malformed
    pickle; both start with `what`.
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
