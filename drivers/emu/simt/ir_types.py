"""Names of LLVM types: lanes, bits, and the suffixes of overloaded intrinsics.

Next: `vector`, the builder of IR text, which uses these names.
"""

from __future__ import annotations

import re

_VECTOR = re.compile(r"<(\d+) x (.+)>")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}


def lanes_of(type_: str) -> int:
    """Return the number of lanes of an IR type; 0 for a scalar."""
    match = _VECTOR.fullmatch(type_)
    return int(match[1]) if match else 0


def element(type_: str) -> str:
    """Return the element type of a vector, or the type itself."""
    match = _VECTOR.fullmatch(type_)
    return match[2] if match else type_


def vector(count: int, type_: str) -> str:
    """Return the type of `count` elements; the scalar type if `count` is 0."""
    return f"<{count} x {type_}>" if count else type_


def bits_of(type_: str) -> int:
    """Return the number of bits of one element."""
    name = element(type_)
    return int(name[1:]) if name[0] == "i" else _BITS[name]


def like(type_: str, name: str) -> str:
    """Return the type with as many lanes as `type_` and element type `name`."""
    return vector(lanes_of(type_), name)


def mangle(type_: str) -> str:
    """Return LLVM's spelling of a type in the name of an overloaded intrinsic."""
    count, name = lanes_of(type_), element(type_)
    short = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}.get(name, name)
    return f"v{count}{short}" if count else short
