"""Forms of special registers, barriers, and control flow. Source: PTX ISA chapters 9.7.12, 9.7.13, 10.

Registers that depend on the machine, such as the clock and the number of the SM, are recorded and not
compared.

Not here: barriers in memory (`copies`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501 - tables of forms read best one form a line

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.forms import Allowed, Form, Launch, Result, frozen, scattered

if TYPE_CHECKING:
    from collections.abc import Iterator

_GRID: Final = Launch((2, 3, 2), (5, 4, 3), scratch_bytes=64 * 720)
_ROWS: Final = 720
_NONE: Final = frozen([[0]] * _ROWS)[:, :0]
_OF_MACHINE: Final = Allowed("free", rule="PTX ISA chapter 10: a property of the machine or a time")
_AXES: Final = tuple(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz")
_EQUAL: Final = (
    *_AXES, "%laneid", "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt",
    "%dynamic_smem_size",
)  # fmt: skip
_MACHINE: Final = (
    "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "%clock", "%clock_hi", "%globaltimer_lo",
    "%globaltimer_hi", "%total_smem_size",
)  # fmt: skip
_HOPPER: Final = 90
_CLUSTERED: Final = tuple(
    f"%{name}.{axis}"
    for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
    for axis in "xyz"
)
_BLOCK: Final = Launch((2, 1, 1), (96, 1, 1), scratch_bytes=64 * 192)
_VALUES: Final = scattered(("u32",), 192, seed=19)


def _special() -> Iterator[Form]:
    """Yield reads of special registers."""
    for name in (*_EQUAL, *_MACHINE, "%aggr_smem_size"):
        machine = name in _MACHINE or name == "%aggr_smem_size"
        result = Result("d", "u32", _OF_MACHINE) if machine else Result("d", "u32")
        yield Form(
            name, f"mov.u32 $d0, {name};", (), _NONE, (result,), launch=_GRID, needs=_HOPPER if "aggr" in name else 0,
        )  # fmt: skip
    for name in ("%clock64", "%globaltimer"):
        text = f".reg .b64 a, b; .reg .pred p; mov.u64 a, {name}; bar.sync 0; mov.u64 b, {name}; setp.le.u64 p, a, b; selp.u32 $d0, 1, 0, p; mov.b64 $d1, a;"
        yield Form(
            name, text, (), _NONE, (Result("rises", "u32"), Result("first", "u64", _OF_MACHINE)), launch=_GRID, doubt=1,
        )  # fmt: skip
    cluster = Launch((6, 1, 1), (64, 1, 1), cluster=2, scratch_bytes=64 * 384)
    for name in (*_CLUSTERED, "%cluster_ctarank", "%cluster_nctarank"):
        yield Form(
            f"{name} in clusters of 2", f"mov.u32 $d0, {name};", (), frozen([[0]] * 384)[:, :0], (Result("d", "u32"),), launch=cluster, needs=_HOPPER, doubt=2,
        )  # fmt: skip
        yield Form(
            f"{name} without clusters", f"mov.u32 $d0, {name};", (), _NONE, (Result("d", "u32"),), launch=_GRID, needs=_HOPPER, doubt=2,
        )  # fmt: skip


def _explicit() -> Iterator[Form]:
    """Yield %is_explicit_cluster in a launch with clusters, and in one without."""
    text = ".reg .pred p; mov.pred p, %is_explicit_cluster; selp.u32 $d0, 1, 0, p;"
    cluster = Launch((4, 1, 1), (32, 1, 1), cluster=2, scratch_bytes=64 * 128)
    for how, launch, rows in (("in clusters of 2", cluster, 128), ("without clusters", _GRID, _ROWS)):
        yield Form(
            f"%is_explicit_cluster {how}", text, (), frozen([[0]] * rows)[:, :0], (Result("d", "u32"),), launch=launch, needs=_HOPPER, doubt=3,
        )  # fmt: skip


_TURNED: Final = ".shared .align 4 .b8 s[384]; .reg .b32 p, q; mov.u32 p, s; shl.b32 q, %t, 2; add.u32 q, p, q; st.shared.u32 [q], $a0; "
_READ: Final = " sub.u32 q, 95, %t; shl.b32 q, q, 2; add.u32 q, p, q; ld.shared.u32 $d0, [q];"


def _barriers() -> Iterator[Form]:
    """Yield the barriers of workgroups and clusters, and addresses in other workgroups of a cluster."""
    result = (Result("d", "u32"),)
    for name, text in (
        ("bar.sync 0", "bar.sync 0;"), ("bar.sync 15, 96", "bar.sync 15, 96;"), ("barrier.sync 1", "barrier.sync 1;"),
        ("barrier.sync.aligned 2, 96", "barrier.sync.aligned 2, 96;"), ("bar.cta.sync 3", "bar.cta.sync 3;"),
        ("barrier.cta.sync 4, 96", "barrier.cta.sync 4, 96;"),
        ("bar.sync of a register", ".reg .b32 b; and.b32 b, $a0, 0; add.u32 b, b, 5; bar.sync b;"),
        ("bar.arrive", ".reg .pred w; setp.lt.u32 w, %t, 32; @w bar.arrive 6, 96; @!w bar.sync 6, 96; bar.sync 0;"),
        ("barrier.arrive", ".reg .pred w; setp.lt.u32 w, %t, 32; @w barrier.arrive 7, 96; @!w barrier.sync 7, 96; bar.sync 0;"),
    ):  # fmt: skip
        yield Form(name, _TURNED + text + _READ, ("u32",), _VALUES, result, launch=_BLOCK, doubt=2)
    for modulus in (1, 2, 5, 97):
        predicate = (f".reg .pred v, w; .reg .b32 m; rem.u32 m, %t, {modulus}; setp.eq.u32 v, m, {modulus // 2}; ")  # fmt: skip
        for word in ("bar.red", "barrier.red", "barrier.red.aligned", "bar.cta.red"):
            name, _, tail = word.partition(".red")
            tail = f"red{tail}"
            yield Form(
                f"{name}.{tail}.popc.u32 of {modulus}", predicate + f"{name}.{tail}.popc.u32 $d0, 1, v;", ("u32",), _VALUES, result, launch=_BLOCK, doubt=3,
            )  # fmt: skip
            for how in ("and", "or"):
                yield Form(
                    f"{name}.{tail}.{how}.pred of {modulus}", predicate + f"{name}.{tail}.{how}.pred w, 1, v; selp.u32 $d0, 1, 0, w;", ("u32",), _VALUES, result, launch=_BLOCK, doubt=3,
                )  # fmt: skip
    cluster = Launch((4, 1, 1), (32, 1, 1), cluster=2, scratch_bytes=64 * 128)
    values = scattered(("u32",), 128, seed=23)
    remote = (
        ".shared .align 4 .b8 s[128]; .reg .b32 p, q, r, k; mov.u32 p, s; shl.b32 q, %t, 2; add.u32 q, p, q; st.shared.u32 [q], $a0; "
        "{arrive}; {wait}; mov.u32 k, %cluster_ctarank; xor.b32 k, k, 1; mapa.shared::cluster.u32 r, q, k; ld.shared::cluster.u32 $d0, [r]; "
        "getctarank.shared::cluster.u32 $d1, r; barrier.cluster.arrive; barrier.cluster.wait;"
    )
    for arrive, wait in (
        ("barrier.cluster.arrive.release", "barrier.cluster.wait.acquire"), ("barrier.cluster.arrive", "barrier.cluster.wait"),
        ("barrier.cluster.arrive.aligned", "barrier.cluster.wait.aligned"),
        ("barrier.cluster.arrive.release.aligned", "barrier.cluster.wait.acquire.aligned"),
        ("fence.acq_rel.cluster; barrier.cluster.arrive.relaxed", "barrier.cluster.wait"),
        ("fence.acq_rel.cluster; barrier.cluster.arrive.relaxed.aligned", "barrier.cluster.wait.aligned"),
    ):  # fmt: skip
        yield Form(
            f"{arrive.rpartition('; ')[2]}, {wait}", remote.format(arrive=arrive, wait=wait), ("u32",), values, (Result("d", "u32"), Result("rank", "u32")), launch=cluster, needs=_HOPPER, doubt=4,
        )  # fmt: skip
    address = ".reg .b64 a, b; .reg .b32 k; .shared .align 4 .b8 s[4]; mov.u64 a, s; cvta.shared.u64 a, a; mov.u32 k, %cluster_ctarank; "
    for name, text in (
        ("mapa.u64", "mapa.u64 b, a, k; xor.b64 b, a, b; mapa.u64 a, a, 1; getctarank.u64 $d0, a;"),
        ("mapa.shared::cluster.u64", "mov.u64 a, s; mapa.shared::cluster.u64 b, a, 1; getctarank.shared::cluster.u64 $d0, b;"),
    ):  # fmt: skip
        yield Form(name, address + text, ("u32",), values, (Result("rank", "u32"),), launch=cluster, needs=_HOPPER, doubt=4)  # fmt: skip


_FUNCTION: Final = ".func (.reg .b32 %x) f(.reg .b32 %y) {\n .reg .pred %p; setp.lt.u32 %p, %y, 1000; @%p bra SMALL; shr.u32 %x, %y, 3; ret;\nSMALL: mul.lo.u32 %x, %y, 3; ret;\n}\n%%\n"


def _control() -> Iterator[Form]:
    result, rows = (Result("d", "u32"),), scattered(("u32",), 64, seed=29)
    launch = Launch((1, 1, 1), (64, 1, 1), scratch_bytes=64 * 64)
    for name, text in (
        ("bra", ".reg .pred p; setp.gt.u32 p, $lane, 11; mov.u32 $d0, 1; @p bra OVER; mov.u32 $d0, 2; OVER: add.u32 $d0, $d0, $a0;"),
        ("bra.uni", "mov.u32 $d0, $a0; bra.uni OVER; mov.u32 $d0, 2; OVER:"),
        ("loop of lanes", ".reg .pred p; .reg .b32 n; and.b32 n, $a0, 15; mov.u32 $d0, 0; AGAIN: add.u32 $d0, $d0, n; setp.gt.u32 p, n, 0; sub.u32 n, n, 1; @p bra AGAIN;"),
        ("brx.idx", "t: .branchtargets A, B, C; .reg .b32 n; rem.u32 n, $a0, 3; brx.idx n, t; A: mov.u32 $d0, 7; bra END; B: mov.u32 $d0, 8; bra END; C: mov.u32 $d0, $a0; END:"),
        ("call", _FUNCTION + "call ($d0), f, ($a0);"), ("call.uni", _FUNCTION + "call.uni ($d0), f, ($a0);"),
        ("exit", ".reg .pred p; setp.lt.u32 p, $lane, 5; mov.u32 $d0, $a0; @p exit;"),
        ("ret", ".reg .pred p; setp.lt.u32 p, $lane, 5; mov.u32 $d0, $a0; @p ret;"),
    ):  # fmt: skip
        yield Form(name, text, ("u32",), rows, result, launch=launch, doubt=1)


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    yield from _special()
    yield from _explicit()
    yield from _barriers()
    yield from _control()
