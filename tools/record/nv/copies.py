"""Forms of asynchronous copies and barriers in memory. Source of the lists: PTX ISA 9.7.9.25, 9.7.13.15.

Each form is a kernel of one warp, or of one in each workgroup of a cluster. A sequence of mbarrier operations
is run by the first thread. After each step it records whether the even and the odd phase have completed. Bulk
copies have several sizes; the bytes around the copied ones are recorded, too.

Not here: boxes of tensors (`tensors`), asynchronous products (`warpgroups`). Next: `vendor`, the list of all
forms.
"""

# ruff: noqa: E501 - tables of forms read best one form a line

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.forms import Form, Launch, Result, scattered

if TYPE_CHECKING:
    from collections.abc import Iterator

HOPPER: Final = 90
"""The first SM version with bulk copies."""
HOPPERS: Final = 99
"""The last SM version of Hopper."""
_WARP: Final = 32
LAUNCH: Final = Launch((1, 1, 1), (32, 1, 1), scratch_bytes=4096 + 64 * 32)
_PAIR: Final = Launch((2, 1, 1), (32, 1, 1), cluster=2, scratch_bytes=64 * 64)
DATA: Final = ("u64", "u64")
HEAD: Final = (
    ".shared .align 1024 .b8 s[4096]; .shared .align 8 .b64 b; .shared .align 8 .b64 b2; .reg .b64 u, v, w, x; .reg .b32 kk, l, m, n, o; .reg .pred p, q, first; "
    "setp.eq.u32 first, %t, 0; mov.u32 m, b; mov.u32 n, s; shl.b32 kk, $lane, 4; add.u32 kk, n, kk; st.shared.v2.b64 [kk], {0, 0}; st.shared.v2.b64 [kk+512], {0, 0}; "
)
"""Declarations. `s` is shared memory, whose first 1,024 bytes are zeros; `n` is its address, `kk` the address of
the thread's 16 bytes in it, `m` the address of an mbarrier; `first` is true in the first thread."""
INIT: Final = (
    "@first mbarrier.init.shared.b64 [b], {}; fence.mbarrier_init.release.cluster; bar.warp.sync -1; "
)
INIT_80: Final = "@first mbarrier.init.shared.b64 [b], {}; bar.warp.sync -1; "
_TEST: Final = "W: mbarrier.test_wait.parity.shared.b64 p, [b], 0; @!p bra W; "
WAIT: Final = "W: mbarrier.try_wait.parity.shared.b64 p, [b], 0; @!p bra W; "
_BACK: Final = " bar.warp.sync -1; ld.shared.v2.b64 {$d0, $d1}, [kk]; ld.shared.v2.b64 {$d2, $d3}, [kk+512];"
RESULTS: Final = tuple(Result(f"d{n}", "u64") for n in range(4))
BULK: Final = "mbarrier::complete_tx::bytes"


def rows(count: int = _WARP) -> object:
    """Return scattered rows of two operands."""
    return scattered(DATA, count, seed=43)


def _sequence(name: str, count: int, steps: tuple[str, ...], since: int = 80) -> Form:
    """Return a form of steps at an mbarrier of `count` arrivals.

    Its result has two bits for each step, from the lowest on: whether the even and the odd phase are
    complete.
    """
    text = HEAD + INIT_80.format(count) + "mov.u32 l, 0; mov.u64 u, 0; @!first bra DONE; "
    for number, step in enumerate(steps):
        text += f"{step} "
        for parity in (0, 1):
            text += f"mbarrier.test_wait.parity.shared.b64 p, [b], {parity}; selp.u32 o, {1 << (2 * number + parity)}, 0, p; or.b32 l, l, o; "
    text += "DONE: mov.b32 $d0, l;"
    return Form(f"mbarrier: {name}", text, DATA, rows(), (Result("phases", "u32"),), launch=LAUNCH, doubt=8, needs=since)  # fmt: skip


def _barriers() -> Iterator[Form]:
    """Yield sequences of operations on an mbarrier."""
    arrive, inval = ("mbarrier.arrive.shared.b64 u, [b];", "mbarrier.inval.shared.b64 [b]; mbarrier.init.shared.b64 [b], 2;")  # fmt: skip
    yield _sequence("arrive", 2, (arrive,) * 6)
    yield _sequence("arrive by count", 3, ("mbarrier.arrive.shared.b64 u, [b], 2;", arrive, "mbarrier.arrive.shared.b64 u, [b], 3;"), HOPPER)  # fmt: skip
    yield _sequence("noComplete", 3, ("mbarrier.arrive.noComplete.shared.b64 u, [b], 2;", arrive, "mbarrier.arrive.noComplete.shared.b64 u, [b], 1;", arrive, arrive))  # fmt: skip
    yield _sequence("drop", 3, ("mbarrier.arrive_drop.shared.b64 u, [b];", arrive, arrive, arrive, arrive, "mbarrier.arrive_drop.noComplete.shared.b64 u, [b], 1;", arrive, arrive))  # fmt: skip
    yield _sequence("drop by count", 4, ("mbarrier.arrive_drop.shared.b64 u, [b], 2;", arrive, arrive, arrive, arrive), HOPPER)  # fmt: skip
    yield _sequence("inval", 1, (arrive, inval, arrive, arrive))
    expect, complete = ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [b], 64;", "mbarrier.complete_tx.shared.b64 [b], 32;")  # fmt: skip
    yield _sequence("expect_tx", 1, (expect, arrive, complete, complete, arrive), HOPPER)
    yield _sequence("complete before expect", 1, (complete, expect, arrive, "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [b], 32;"), HOPPER)  # fmt: skip
    yield _sequence("arrive.expect_tx", 2, ("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 u, [b], 64;", complete, arrive, complete), HOPPER)  # fmt: skip
    yield _sequence("arrive.expect_tx plain", 1, ("mbarrier.arrive.expect_tx.shared.b64 u, [b], 32;", complete, "mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 u, [b], 0;"), HOPPER)  # fmt: skip
    yield _sequence("arrive_drop.expect_tx", 2, ("mbarrier.arrive_drop.expect_tx.shared::cta.b64 u, [b], 32;", arrive, complete, arrive, arrive), HOPPER)  # fmt: skip
    for scope in ("cta", "cluster"):
        for order in ("release", "relaxed"):
            words = f"mbarrier.arrive.{order}.{scope}.shared::cta.b64 u, [b];"
            yield _sequence(f"arrive.{order}.{scope}", 2, (words,) * 5, HOPPER)
        for order in ("acquire", "relaxed"):
            waits = f"{arrive} mbarrier.test_wait.parity.{order}.{scope}.shared::cta.b64 q, [b], 0; mbarrier.try_wait.parity.{order}.{scope}.shared::cta.b64 q, [b], 0; mbarrier.try_wait.parity.{order}.{scope}.shared::cta.b64 q, [b], 0, 1000;"
            yield _sequence(f"wait.{order}.{scope}", 1, (waits, arrive), HOPPER)
    yield _sequence("generic address", 2, ("mov.u64 w, b; cvta.shared.u64 w, w; mbarrier.arrive.b64 u, [w];", "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [m];"), HOPPER)  # fmt: skip
    yield _sequence(
        "words of shared::cta",
        1,
        (
            "mbarrier.arrive.shared::cta.b64 u, [b]; mbarrier.try_wait.shared::cta.b64 q, [b], u; mbarrier.try_wait.parity.shared::cta.b64 q, [b], 0;",
            "mbarrier.inval.shared::cta.b64 [b]; mbarrier.init.shared::cta.b64 [b], 2;",
            "mbarrier.arrive.expect_tx.shared::cta.b64 u, [b], 32;",
            complete,
            "mbarrier.test_wait.shared::cta.b64 q, [b], u; mbarrier.arrive.shared::cta.b64 u, [b];",
        ),
        HOPPER,
    )
    text = HEAD + INIT_80.format(4) + "mov.u32 $d0, 0; mov.u32 $d1, 0; mov.u32 $d2, 0; @!first bra DONE; "
    text += "mbarrier.arrive.noComplete.shared.b64 u, [b], 2; mbarrier.pending_count.b64 $d0, u; mbarrier.arrive.shared.b64 v, [b]; mbarrier.pending_count.b64 $d1, v; "
    text += "mbarrier.test_wait.shared.b64 p, [b], v; selp.u32 $d2, 1, 0, p; mbarrier.arrive.shared.b64 w, [b]; mbarrier.test_wait.shared.b64 p, [b], v; selp.u32 o, 2, 0, p; or.b32 $d2, $d2, o; "
    results = tuple(Result(name, "u32") for name in ("pending", "then", "waits"))
    yield Form("mbarrier.pending_count.b64", text + "DONE:", DATA, rows(), results, launch=LAUNCH, doubt=8, needs=80)  # fmt: skip
    waits = "mbarrier.try_wait.shared.b64 p, [b], v; selp.u32 o, 4, 0, p; or.b32 $d2, $d2, o; mbarrier.try_wait.acquire.cta.shared::cta.b64 p, [b], v, 1000; selp.u32 o, 8, 0, p; or.b32 $d2, $d2, o; "
    yield Form("mbarrier.try_wait.shared.b64", text + waits + "DONE:", DATA, rows(), results, launch=LAUNCH, doubt=8, needs=HOPPER)  # fmt: skip


def _small_copies() -> Iterator[Form]:
    """Yield cp.async of 4, 8 and 16 bytes, with a shorter source, with the operand that skips the source."""
    waits = {
        "wait_all": "cp.async.wait_all;", "wait_group 0": "cp.async.commit_group; cp.async.wait_group 0;",
        "wait_group 1": "cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1;",
        "mbarrier": "cp.async.mbarrier.arrive.noinc.shared.b64 [b]; " + _TEST,
        "mbarrier without incrementing, shared": "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [b]; " + _TEST,
        "mbarrier, incremented, shared": "cp.async.mbarrier.arrive.shared.b64 [b]; mbarrier.arrive.shared.b64 u, [b]; " + _TEST,
        "mbarrier, incremented": "cp.async.mbarrier.arrive.shared::cta.b64 [b]; mbarrier.arrive.shared.b64 u, [b]; " + _TEST,
    }  # fmt: skip
    policy = "createpolicy.fractional.L2::evict_last.b64 v, 0.5; "
    for size in (4, 8, 16):
        for cache in ("ca", "cg") if size == 16 else ("ca",):
            for tail in ("", *(f", {given}" for given in range(0, size + 1, max(1, size // 4))), ", q"):
                for hint in ("", ".L2::64B", ".L2::128B", ".L2::256B", ".L2::cache_hint"):
                    if hint and tail not in ("", ", 4"):
                        continue
                    for space in ("shared", "shared::cta") if not (hint or tail) else ("shared",):
                        name = f"cp.async.{cache}.{space}.global{hint}"
                        operands = f"[kk], [$at], {size}{tail}{', v' if 'hint' in hint else ''}"
                        text = (HEAD + "st.shared.v2.b64 [kk], {-1, -1}; and.b32 l, $lane, 1; setp.eq.u32 q, l, 0; " + (policy if "hint" in hint else ""))  # fmt: skip
                        text += f"{name} {operands}; {waits['wait_all']}" + _BACK
                        yield Form(f"{name} {size}{tail}", text, DATA, rows(), RESULTS, launch=LAUNCH, doubt=7, needs=80)  # fmt: skip
    for how, wait in waits.items():
        text = HEAD + INIT_80.format(32) + f"cp.async.ca.shared.global [kk], [$at], 16; {wait}" + _BACK
        yield Form(f"cp.async, {how}", text, DATA, rows(), RESULTS, launch=LAUNCH, doubt=7, needs=80)


ONCE: Final = "@!first bra DONE; "
FENCE: Final = " fence.proxy.async.shared::cta; bar.warp.sync -1; "


def _bulk() -> Iterator[Form]:
    """Yield bulk copies, a prefetch and reductions between global and shared memory."""
    for size in (16, 32, 48, 128, 496, 512):
        # The assembler makes a call of the first form for later architectures.
        for space, last in (("shared::cluster", HOPPERS), ("shared::cta", 1 << 30)):
            copy = f"mbarrier.arrive.expect_tx.shared.b64 _, [b], {size}; cp.async.bulk.{space}.global.{BULK} [n], [%in], {size}, [m];"
            text = HEAD + INIT.format(1) + FENCE + ONCE + copy + "DONE: " + WAIT + _BACK
            name = f"cp.async.bulk.{space}.global, {size}"
            yield Form(name, text, DATA, rows(), RESULTS, launch=LAUNCH, doubt=8, needs=HOPPER, until=last)
        fill = "st.shared.v2.b64 [kk], {$a0, $a1};" + FENCE
        for how in ("wait_group", "wait_group.read"):
            copy = f"cp.async.bulk.global.shared::cta.bulk_group [x], [n], {size}; cp.async.bulk.commit_group; cp.async.bulk.{how} 0;"
            if how.endswith("read"):
                copy += " cp.async.bulk.wait_group 0;"
            text = (HEAD + "add.u64 x, %out, SCRATCH; " + fill + ONCE + copy + " fence.proxy.async.global; DONE: bar.warp.sync -1; ")  # fmt: skip
            text += "mul.wide.u32 u, $lane, 16; add.u64 u, u, x; ld.global.v2.b64 {$d0, $d1}, [u]; ld.global.v2.b64 {$d2, $d3}, [u+512];"
            yield Form(f"cp.async.bulk from shared memory, {size}, {how}", text.replace("SCRATCH", "1024"), DATA, rows(), RESULTS, launch=LAUNCH, doubt=8, needs=HOPPER)  # fmt: skip
        copy = f"mbarrier.arrive.expect_tx.shared.b64 _, [b], {size}; cp.async.bulk.shared::cluster.shared::cta.{BULK} [o], [n], {size}, [m];"
        text = (HEAD + "add.u32 o, n, 512; " + INIT.format(1) + fill + ONCE + copy + "DONE: " + WAIT + _BACK)
        yield Form(f"cp.async.bulk within shared memory, {size}", text, DATA, rows(), RESULTS, launch=LAUNCH, doubt=8, needs=HOPPER)  # fmt: skip
    text = HEAD + "@first cp.async.bulk.prefetch.L2.global [%in], 64; mov.b64 $d0, $a0;"
    yield Form("cp.async.bulk.prefetch.L2.global", text, DATA, rows(), RESULTS[:1], launch=LAUNCH, needs=HOPPER)  # fmt: skip
    yield from _reductions()


def _reductions() -> Iterator[Form]:
    kinds = [("add", t) for t in ("u32", "s32", "u64", "f32", "f64")] + [("add.noftz", t) for t in ("f16", "bf16")]  # fmt: skip
    kinds += [(name, t) for name in ("min", "max") for t in ("u32", "s32", "u64", "s64", "f16", "bf16")]
    kinds += [(name, t) for name in ("and", "or", "xor") for t in ("b32", "b64")] + [("inc", "u32"), ("dec", "u32")]  # fmt: skip
    for operation, type_ in kinds:
        name = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{type_}"
        text = (HEAD + "add.u64 x, %out, 1024; mul.wide.u32 u, $lane, 16; add.u64 u, u, x; st.global.v2.b64 [u], {$a1, $a0}; st.shared.v2.b64 [kk], {$a0, $a1}; fence.proxy.async;")  # fmt: skip
        text += f" bar.warp.sync -1; {ONCE}{name} [x], [n], 256; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; fence.proxy.async.global; DONE: bar.warp.sync -1; ld.global.v2.b64 {{$d0, $d1}}, [u];"
        yield Form(name, text, DATA, rows(), RESULTS[:2], launch=LAUNCH, doubt=8, needs=HOPPER)


def _remote() -> Iterator[Form]:
    """Yield asynchronous stores and reductions in the shared memory of the cluster's other workgroup."""
    head = (HEAD + INIT.format(1) + "mov.u32 l, %cluster_ctarank; xor.b32 l, l, 1; mapa.shared::cluster.u32 kk, kk, l; mapa.shared::cluster.u32 m, m, l; ")  # fmt: skip
    meet = "barrier.cluster.arrive; barrier.cluster.wait; "
    back = WAIT + "shl.b32 kk, $lane, 4; add.u32 kk, n, kk; ld.shared.v2.b64 {$d0, $d1}, [kk]; " + meet
    both, results = rows(64), RESULTS[:2]
    words = "shared::cluster.mbarrier::complete_tx::bytes"
    stores = [(f"st.async.{words}.b32", 4, ".reg .b32 r; cvt.u32.u64 r, $a0;", "r"), (f"st.async.{words}.b64", 8, "", "$a0"), (f"st.async.{words}.v2.b64", 16, "", "{$a0, $a1}")]  # fmt: skip
    stores += [(f"st.async.{words}.v4.b32", 16, ".reg .b32 r0, r1, r2, r3; mov.b64 {r0, r1}, $a0; mov.b64 {r2, r3}, $a1;", "{r0, r1, r2, r3}")]  # fmt: skip
    for operation, type_ in (
        ("add", "u32"),
        ("add", "s32"),
        ("add", "u64"),
        ("min", "u32"),
        ("max", "s32"),
        ("and", "b32"),
        ("or", "b32"),
        ("xor", "b32"),
        ("inc", "u32"),
        ("dec", "u32"),
    ):
        size = int(type_[1:]) // 8
        narrow = (".reg .b32 r; cvt.u32.u64 r, $a0;", "r") if size == 4 else ("", "$a0")
        stores.append((f"red.async.relaxed.cluster.{words}.{operation}.{type_}", size, *narrow))
    for name, size, before, value in stores:
        text = (head + f"@first mbarrier.arrive.expect_tx.shared.b64 _, [b], {size * 32}; {before} {meet}{name} [kk], {value}, [m]; " + back)  # fmt: skip
        yield Form(name, text, DATA, both, results, launch=_PAIR, doubt=8, needs=HOPPER)


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    yield from _barriers()
    yield from _small_copies()
    yield from _bulk()
    yield from _remote()
