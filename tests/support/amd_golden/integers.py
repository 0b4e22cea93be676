"""Kernels of integer arithmetic, comparison and bit operations, scalar and vector.

Not here: which targets compile them (`corpus`). Next: `ir`, the parts that they share.
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.amd_golden.ir import intrinsic, kernel

if TYPE_CHECKING:
    from collections.abc import Iterator


INTEGERS = ("i8", "i16", "i32", "i64", "<2 x i16>", "<4 x i32>", "<2 x i32>", "i1")


def integer_kernels() -> Iterator[str]:
    """Yield kernels of each integer operation and type, and of the fused forms that LLVM selects."""
    for type_ in INTEGERS:
        for op in ("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "udiv", "srem"):
            if type_ == "i1" and op in ("shl", "lshr", "ashr", "udiv", "srem"):
                continue
            if op in ("udiv", "srem") and type_ not in ("i32", "i64", "i16"):
                continue
            yield kernel(type_, f"  %r = {op} {type_} %x, %y")
            yield kernel(type_, f"  %m = {op} {type_} %x, %s\n  %r = {op} {type_} %m, %z")
        for name in (
            "smin",
            "smax",
            "umin",
            "umax",
            "ctpop",
            "bitreverse",
            "bswap",
            "fshl",
            "fshr",
            "uadd.sat",
            "ssub.sat",
            "abs",
            "ctlz",
            "cttz",
        ):
            if type_ == "i1" or (name == "bswap" and "8" in type_):
                continue
            if name in ("abs", "ctlz", "cttz"):
                line, declare = intrinsic(name, type_, "%x", "i1 0")
            else:
                args = {"ctpop": 1, "bitreverse": 1, "bswap": 1, "fshl": 3, "fshr": 3}.get(name, 2)
                line, declare = intrinsic(name, type_, *("%x", "%y", "%z")[:args])
            yield kernel(type_, line, extra=declare)
        lanes = type_.split(" x")[0] + " x i1>" if type_[0] == "<" else "i1"
        for predicate in ("eq", "ne", "slt", "ule", "sge", "ugt"):
            yield kernel(
                type_,
                f"  %t = icmp {predicate} {type_} %x, %y\n  %r = select {lanes} %t, {type_} %x, {type_} %z",
            )
            if type_[0] != "<":
                yield kernel(
                    type_,
                    f"  %t = icmp {predicate} {type_} %s, 7\n  %r = select i1 %t, {type_} %s, {type_} %z",
                )
    for code in (
        "  %m = mul i32 %x, %y\n  %r = add i32 %m, %z", "  %m = shl i32 %x, 3\n  %r = add i32 %m, %z",
        "  %m = and i32 %x, 16777215\n  %n = and i32 %y, 16777215\n  %p = mul i32 %m, %n\n  %r = add i32 %p, %z",
        "  %m = and i32 %x, %y\n  %r = or i32 %m, %z", "  %m = or i32 %x, %y\n  %r = or i32 %m, %z",
        "  %m = xor i32 %x, %y\n  %r = xor i32 %m, %z", "  %m = add i32 %x, %y\n  %r = add i32 %m, %z",
        "  %m = lshr i32 %x, 5\n  %r = and i32 %m, 255", "  %m = shl i32 %x, 20\n  %r = ashr i32 %m, 24",
        "  %n = xor i32 %y, -1\n  %m = and i32 %x, %n\n  %q = and i32 %z, %y\n  %r = or i32 %m, %q",
        "  %m = shl i32 %x, 4\n  %r = or i32 %m, %y", "  %m = add i32 %x, %y\n  %r = shl i32 %m, 2",
        "  %m = sub i32 0, %x\n  %r = sub i32 %m, 1234567", "  %m = and i32 %x, 65535\n  %n = shl i32 %y, 16\n  %r = or i32 %m, %n",
        "  %m = mul i32 %x, 12345\n  %n = mul i32 %s, 77777\n  %r = sub i32 %m, %n",
        "  %m = xor i32 %x, %y\n  %r = xor i32 %m, -1", "  %m = add i32 %x, 100\n  %n = xor i32 %m, %y\n  %r = add i32 %n, %z",
    ):  # fmt: skip
        yield kernel("i32", code)
    for sign in ("s", "z"):
        wide = f"  %p = {sign}ext i32 %x to i64\n  %q = {sign}ext i32 %y to i64\n  %m = mul i64 %p, %q\n"
        yield kernel("i32", wide + "  %h = lshr i64 %m, 32\n  %r = trunc i64 %h to i32")
        yield kernel("i32", wide + f"  %w = {sign}ext i32 %z to i64\n  %r = add i64 %m, %w", "i64")
