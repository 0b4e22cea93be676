"""Differential fuzzing: random LLVM IR as PTX through the emulator, and as host code, must agree bit for bit.

A case is two random functions of integers (nested branches, loops, every width, f16, f32, f64). The kernel
calls the first, swaps results through shared memory and by a shuffle, calls the second, stores, and counts
with atomics. A seed reproduces a case.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import ctypes
import random
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from drivers.emu import jit
from drivers.emu.launch import Options

THREADS = 128
BLOCKS = 3
INTS = ("i8", "i16", "i32", "i64")
FLOATS = ("half", "float", "double")


class Writer:
    """Writes one random function `i64 name(i64 a, i64 b, i64 i)`."""

    def __init__(self, rng: random.Random, name: str, size: int) -> None:
        self.rng, self.name, self.size = rng, name, size
        self.lines: list[str] = []
        self.count = 0
        self.at = "entry"

    def let(self, type_: str, text: str) -> tuple[str, str]:
        self.count += 1
        self.lines.append(f"  %x{self.count} = {text}")
        return type_, f"%x{self.count}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.at = name

    def pick(self, values: Any, type_: str) -> Any:
        """A value of a type: one there is, converted if need be, or a constant."""
        rng = self.rng
        same = [v for v in values if v[0] == type_]
        if same and rng.random() < 0.7:
            return rng.choice(same)
        if type_ in INTS and rng.random() < 0.3:
            return type_, str(rng.choice([0, 1, 2, 3, 5, 7, 15, 31, 100, -1, -2, -128]))
        return self.convert(rng.choice(values), type_)

    def convert(self, value: Any, type_: str):
        have, ref = value
        if have == type_:
            return value
        if have in INTS and type_ in INTS:
            a, b = int(have[1:]), int(type_[1:])
            return self.let(
                type_, f"{'trunc' if a > b else self.rng.choice(['zext', 'sext'])} {have} {ref} to {type_}"
            )
        if have in INTS:
            if type_ == "half":
                ref = self.let(have, f"and {have} {ref}, 63")[1]
            return self.let(type_, f"{self.rng.choice(['uitofp', 'sitofp'])} {have} {ref} to {type_}")
        if type_ in INTS:
            wide = value if have != "half" else self.let("float", f"fpext half {ref} to float")
            kind = "f32" if wide[0] == "float" else "f64"
            target = type_ if type_ in ("i32", "i64") else "i32"
            got = self.let(
                target,
                f"call {target} @llvm.{self.rng.choice(['fptosi', 'fptoui'])}.sat.{target}.{kind}({wide[0]} {wide[1]})",
            )
            return self.convert(got, type_)
        order = FLOATS.index(have) < FLOATS.index(type_)
        if have == "double" and type_ == "half":
            value = self.number(self.let("float", f"fptrunc double {ref} to float"))
            return self.number(self.let("half", f"fptrunc float {value[1]} to half"))
        return self.number(self.let(type_, f"{'fpext' if order else 'fptrunc'} {have} {ref} to {type_}"))

    def number(self, value: Any):
        """Replace NaN: its bits are the one thing host and device may disagree about."""
        type_, ref = value
        bad = self.let("i1", f"fcmp uno {type_} {ref}, {ref}")[1]
        return self.let(type_, f"select i1 {bad}, {type_} 1.0, {type_} {ref}")

    def operation(self, values: Any):
        rng = self.rng
        type_ = rng.choice(INTS + INTS + FLOATS)
        a, b = self.pick(values, type_), self.pick(values, type_)
        if type_ in FLOATS:
            kind = {"half": "f16", "float": "f32", "double": "f64"}[type_]
            op = rng.choice(
                ["fadd", "fsub", "fmul", "select"] + ([] if type_ == "half" else ["fdiv", "fma", "sqrt"])
            )
            if op == "fma":
                c = self.pick(values, type_)
                return self.number(
                    self.let(
                        type_,
                        f"call {type_} @llvm.fma.{kind}({type_} {a[1]}, {type_} {b[1]}, {type_} {c[1]})",
                    )
                )
            if op == "sqrt":
                return self.number(self.let(type_, f"call {type_} @llvm.sqrt.{kind}({type_} {a[1]})"))
            if op == "select":
                c = self.let("i1", f"fcmp {rng.choice(['olt', 'oge', 'oeq', 'une'])} {type_} {a[1]}, {b[1]}")[
                    1
                ]
                return self.let(type_, f"select i1 {c}, {type_} {a[1]}, {type_} {b[1]}")
            return self.number(self.let(type_, f"{op} {type_} {a[1]}, {b[1]}"))
        bits = int(type_[1:])
        op = rng.choice(
            [
                "add",
                "sub",
                "mul",
                "and",
                "or",
                "xor",
                "shl",
                "lshr",
                "ashr",
                "udiv",
                "urem",
                "sdiv",
                "srem",
                "umin",
                "smax",
                "ctpop",
                "ctlz",
                "bitreverse",
                "fshl",
                "abs",
                "cmp",
            ]
        )
        if op in ("shl", "lshr", "ashr"):
            b = self.let(type_, f"and {type_} {b[1]}, {bits - 1}")
        if op in ("udiv", "urem", "sdiv", "srem"):
            b = self.let(type_, f"and {type_} {b[1]}, {(1 << (bits - 1)) - 1}")
            b = self.let(type_, f"or {type_} {b[1]}, 1")
        if op in ("umin", "smax"):
            return self.let(type_, f"call {type_} @llvm.{op}.{type_}({type_} {a[1]}, {type_} {b[1]})")
        if op in ("ctpop", "bitreverse"):
            return self.let(type_, f"call {type_} @llvm.{op}.{type_}({type_} {a[1]})")
        if op in ("ctlz", "abs"):
            return self.let(type_, f"call {type_} @llvm.{op}.{type_}({type_} {a[1]}, i1 false)")
        if op == "fshl":
            c = self.pick(values, type_)
            return self.let(
                type_, f"call {type_} @llvm.fshl.{type_}({type_} {a[1]}, {type_} {b[1]}, {type_} {c[1]})"
            )
        if op == "cmp":
            how = rng.choice(["eq", "ne", "ult", "slt", "uge", "sgt"])
            c = self.let("i1", f"icmp {how} {type_} {a[1]}, {b[1]}")[1]
            return (
                self.let(type_, f"select i1 {c}, {type_} {self.pick(values, type_)[1]}, {type_} {b[1]}")
                if False
                else self.let(type_, f"select i1 {c}, {type_} {a[1]}, {type_} {b[1]}")
            )
        return self.let(type_, f"{op} {type_} {a[1]}, {b[1]}")

    def block(self, values: Any, depth: int, size: int):
        values = list(values)
        for _ in range(size):
            kind = self.rng.random()
            if depth < 3 and kind < 0.12:
                values.append(self.branch(values, depth, size))
            elif depth < 3 and kind < 0.2:
                values.append(self.loop(values, depth, size))
            else:
                values.append(self.operation(values))
        return values

    def branch(self, values: Any, depth: int, size: int):
        self.count += 1
        q = self.count
        type_ = self.rng.choice(INTS)
        a, b = self.pick(values, type_), self.pick(values, type_)
        c = self.let("i1", f"icmp {self.rng.choice(['ult', 'slt', 'eq', 'ne'])} {type_} {a[1]}, {b[1]}")[1]
        result = self.rng.choice(("i32", "i64", "float"))
        self.lines.append(f"  br i1 {c}, label %T{q}, label %E{q}")
        ends = []
        for side in "TE":
            self.label(f"{side}{q}")
            value = self.convert(self.block(values, depth + 1, size // 2)[-1], result)
            ends.append((value[1], self.at))
            self.lines.append(f"  br label %J{q}")
        self.label(f"J{q}")
        return self.let(result, f"phi {result} " + ", ".join(f"[ {v}, %{at} ]" for v, at in ends))

    def loop(self, values: Any, depth: int, size: int):
        self.count += 1
        q = self.count
        times = self.let("i32", f"and i32 {self.pick(values, 'i32')[1]}, 7")[1]
        start = self.pick(values, "i64")
        before = self.at
        self.lines.append(f"  br label %H{q}")
        self.label(f"H{q}")
        where = len(self.lines)
        inner = self.block([*values, ("i32", f"%k{q}"), ("i64", f"%c{q}")], depth + 1, size // 3)
        carried = self.convert(inner[-1], "i64")
        step = self.let("i32", f"add i32 %k{q}, 1")[1]
        leave = self.let("i1", f"icmp ugt i32 {step}, {times}")[1]
        self.lines.append(f"  br i1 {leave}, label %X{q}, label %H{q}")
        self.lines.insert(where, f"  %c{q} = phi i64 [ {start[1]}, %{before} ], [ {carried[1]}, %{self.at} ]")
        self.lines.insert(where, f"  %k{q} = phi i32 [ 0, %{before} ], [ {step}, %{self.at} ]")
        self.label(f"X{q}")
        return carried

    def text(self) -> str:
        values = self.block([("i64", "%a"), ("i64", "%b"), ("i64", "%i")], 0, self.size)
        total = "0"
        for value in values[-8:]:
            part = self.convert(value, "i64") if value[0] in INTS else self.let("i64", self.raw(value))
            mixed = self.let("i64", f"mul i64 {total}, 6364136223846793005")
            total = self.let("i64", f"xor i64 {mixed[1]}, {part[1]}")[1]
        body = "\n".join(self.lines)
        return f"define internal i64 @{self.name}(i64 %a, i64 %b, i64 %i) alwaysinline {{\nentry:\n{body}\n  ret i64 {total}\n}}\n"

    def raw(self, value: Any) -> str:
        type_, ref = value
        bits = {"half": 16, "float": 32, "double": 64}[type_]
        as_int = self.let(f"i{bits}", f"bitcast {type_} {ref} to i{bits}")
        return f"zext i{bits} {as_int[1]} to i64" if bits < 64 else f"add i64 {as_int[1]}, 0"


def declarations() -> str:
    lines = []
    for t in INTS:
        lines += [f"declare {t} @llvm.{n}.{t}({t}, {t})" for n in ("umin", "smax")]
        lines += [f"declare {t} @llvm.{n}.{t}({t})" for n in ("ctpop", "bitreverse")]
        lines += [f"declare {t} @llvm.{n}.{t}({t}, i1)" for n in ("ctlz", "abs")]
        lines += [f"declare {t} @llvm.fshl.{t}({t}, {t}, {t})"]
    for t, k in (("half", "f16"), ("float", "f32"), ("double", "f64")):
        lines += [f"declare {t} @llvm.fma.{k}({t}, {t}, {t})", f"declare {t} @llvm.sqrt.{k}({t})"]
        lines += [
            f"declare {i} @llvm.{n}.sat.{i}.{k}({t})" for i in ("i32", "i64") for n in ("fptosi", "fptoui")
        ]
    return "\n".join(lines) + "\n"


DEVICE = """
target triple = "nvptx64-nvidia-cuda"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier0()
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
@s = internal addrspace(3) global [THREADS x i64] undef, align 16
define ptx_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %h) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %g = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %g1 = mul i32 %g, THREADS
  %i = add i32 %g1, %t
  %px = getelementptr i64, ptr addrspace(1) %x, i32 %i
  %py = getelementptr i64, ptr addrspace(1) %y, i32 %i
  %po = getelementptr i64, ptr addrspace(1) %o, i32 %i
  %a = load i64, ptr addrspace(1) %px
  %b = load i64, ptr addrspace(1) %py
  %i64 = zext i32 %i to i64
  %v = call i64 @f(i64 %a, i64 %b, i64 %i64)
  %ps = getelementptr i64, ptr addrspace(3) @s, i32 %t
  store i64 %v, ptr addrspace(3) %ps
  call void @llvm.nvvm.barrier0()
  %u0 = xor i32 %t, SWAP
  %pu = getelementptr i64, ptr addrspace(3) @s, i32 %u0
  %u = load i64, ptr addrspace(3) %pu
  %lo = trunc i64 %u to i32
  %sh = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %lo, i32 BFLY, i32 31)
  %sh64 = zext i32 %sh to i64
  %w = call i64 @g(i64 %u, i64 %sh64, i64 %i64)
  store i64 %w, ptr addrspace(1) %po
  %bin = and i64 %w, 15
  %ph = getelementptr i32, ptr addrspace(1) %h, i64 %bin
  %old = atomicrmw add ptr addrspace(1) %ph, i32 1 monotonic
  ret void
}
"""

HOST = """
define void @host_f(ptr %o, ptr %x, ptr %y, i64 %n) {
entry:
  br label %l
l:
  %i = phi i64 [0, %entry], [%i1, %l]
  %px = getelementptr i64, ptr %x, i64 %i
  %py = getelementptr i64, ptr %y, i64 %i
  %po = getelementptr i64, ptr %o, i64 %i
  %a = load i64, ptr %px
  %b = load i64, ptr %py
  %r = call i64 @f(i64 %a, i64 %b, i64 %i)
  store i64 %r, ptr %po
  %i1 = add i64 %i, 1
  %c = icmp ult i64 %i1, %n
  br i1 %c, label %l, label %e
e:
  ret void
}
"""


def to_ptx(text: str) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(
        cpu="sm_80", features="+ptx78", opt=2
    )
    module.data_layout = str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)


def on_host(text: str, x: Any, y: Any):
    target = jit.host()
    whole = text + f"attributes #9 = {{ {target.attributes} }}\n"
    loaded = jit.load(jit.compile_ir(whole, target, optimise=True), ["host_f", "host_g"], {})
    functions = [
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_uint64)(loaded.addresses[n])
        for n in ("host_f", "host_g")
    ]

    def call(function: Any, a: Any, b: Any) -> Any:
        out = np.zeros(len(a), "u8")
        function(out.ctypes.data, a.ctypes.data, b.ctypes.data, len(a))
        return out

    return call, functions, loaded


def case(bench: Any, seed: int) -> None:
    rng = random.Random(seed)
    f, g = Writer(rng, "f", rng.choice([6, 10, 16])).text(), Writer(rng, "g", 8).text()
    swap, bfly = rng.choice([1, 5, 33, 64, 127]), rng.choice([1, 2, 4, 8, 16])
    n = THREADS * BLOCKS
    data = np.random.default_rng(seed)
    x, y = (data.integers(0, 2**64, n, dtype="u8") >> data.integers(0, 64, n, dtype="u8") for _ in range(2))
    ptx = to_ptx(
        DEVICE.replace("THREADS", str(THREADS)).replace("SWAP", str(swap)).replace("BFLY", str(bfly))
        + declarations()
        + f
        + g
    )
    out, hist = bench.new(np.zeros(n), "u8"), bench.new(np.zeros(16), "u4")
    tier = ("quick", "optimised")[seed & 1]
    done = bench.run(
        ptx,
        "k",
        BLOCKS,
        THREADS,
        out,
        bench.new(x, "u8"),
        bench.new(y, "u8"),
        hist,
        arch="sm_80",
        options=Options(tier=tier),
    )
    assert done.fault is None, done.fault

    host = declarations() + f + g + HOST + HOST.replace("host_f", "host_g").replace("@f(", "@g(")
    call, (host_f, host_g), keep = on_host(host.replace(") {\nentry", ") #9 {\nentry"), x, y)
    v = call(host_f, x, y)
    index = np.arange(n)
    u = v[index // THREADS * THREADS + ((index % THREADS) ^ swap)]
    w = call(host_g, u, (u & np.uint64(0xFFFF_FFFF))[index ^ bfly])
    del keep
    wrong = np.nonzero(out != w)[0]
    assert wrong.size == 0, (
        f"seed {seed}: {wrong.size} of {n} differ, first at {wrong[0]}: {out[wrong[0]]:#x}, wanted {w[wrong[0]]:#x}"
    )
    assert hist.tolist() == np.bincount((w & np.uint64(15)).astype(int), minlength=16).tolist()


@pytest.mark.parametrize("seed", range(30))
def test_random_kernels_agree_with_host_code(bench: Any, seed: Any):
    case(bench, seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1000, 1300, 20))
def test_many_random_kernels_agree_with_host_code(bench: Any, first: Any):
    for seed in range(first, first + 20):
        case(bench, seed)
