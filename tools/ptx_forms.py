"""The reference page of PTX: forms of each instruction, and whether the emulator translates or refuses them.

Forms are translated and not run. A refusal must name the instruction.

Not here: the translation (`emulator.nv.ptx.translate`). Next: `tools.reference`, which writes the page.
"""

# ruff: noqa: E501 - lines of PTX are more readable unbroken

from __future__ import annotations

import functools
from dataclasses import dataclass

from emulator.ir import jit
from emulator.ir.library import Library, Sanitizers
from emulator.nv.ptx.flat import flatten
from emulator.nv.ptx.statements import PtxError
from emulator.nv.ptx.syntax import parse
from emulator.nv.ptx.translate import translate

HEAD = """.version 8.8
.target {arch}
.address_size 64
.global .align 16 .b8 g[64];
.visible .entry k(.param .u64 out) {{
.shared .align 128 .b8 s[4096]; .local .align 16 .b8 l[64];
.reg .pred %p<8>; .reg .b8 %b<4>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .f32 %f<8>; .reg .f64 %d<8>; .reg .b64 %rd<16>; .reg .b128 %q<4>;
"""
BULK = "mbarrier::complete_tx::bytes"
REMOTE = f"shared::cluster.{BULK}"
FOUR, EIGHT = "{%r1,%r2,%r3,%r4}", "{%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}"

SECTIONS: dict[str, tuple[str, ...]] = {
    "Integers": (
        "add.u32 %r1, %r2, %r3; add.sat.s32 %r1, %r2, %r3; add.u16x2 %r1, %r2, %r3",
        "sub.s64 %rd1, %rd2, %rd3",
        "add.cc.u32 %r1, %r2, %r3",
        "addc.cc.u64 %rd1, %rd2, %rd3",
        "sub.cc.u32 %r1, %r2, %r3",
        "subc.u32 %r1, %r2, %r3",
        "mul.lo.s32 %r1, %r2, %r3; mul.hi.u64 %rd1, %rd2, %rd3; mul.wide.u16 %r1, %h1, %h2",
        "mad.lo.u32 %r1, %r2, %r3, %r4; mad.hi.sat.s32 %r1, %r2, %r3, %r4; mad.wide.s32 %rd1, %r1, %r2, %rd2",
        "mad.lo.cc.u32 %r1, %r2, %r3, %r4",
        "madc.hi.cc.u32 %r1, %r2, %r3, %r4",
        "mul24.lo.u32 %r1, %r2, %r3",
        "mad24.hi.s32 %r1, %r2, %r3, %r4",
        "sad.s32 %r1, %r2, %r3, %r4",
        "div.s32 %r1, %r2, %r3",
        "rem.u64 %rd1, %rd2, %rd3",
        "abs.s32 %r1, %r2",
        "neg.s64 %rd1, %rd2",
        "min.s32 %r1, %r2, %r3; min.relu.s16x2 %r1, %r2, %r3",
        "max.u16x2 %r1, %r2, %r3",
        "popc.b64 %r1, %rd1",
        "clz.b32 %r1, %r2",
        "bfind.shiftamt.s64 %r1, %rd1",
        "fns.b32 %r1, %r2, %r3, %r4",
        "brev.b32 %r1, %r2",
        "bfe.s32 %r1, %r2, %r3, %r4",
        "bfi.b64 %rd1, %rd2, %rd3, %r1, %r2",
        "szext.wrap.s32 %r1, %r2, %r3",
        "bmsk.clamp.b32 %r1, %r2, %r3",
        "dp4a.s32.u32 %r1, %r2, %r3, %r4",
        "dp2a.lo.u32.s32 %r1, %r2, %r3, %r4",
    ),
    "Floating point": (
        "testp.subnormal.f32 %p1, %f1",
        "copysign.f64 %d1, %d2, %d3",
        ("add.rz.ftz.sat.f32 %f1, %f2, %f3; add.f16x2 %r1, %r2, %r3; add.rn.bf16 %h1, %h2, %h3; @100 add.f32x2 %rd1, %rd2, %rd3; "
        "@100 add.rn.f32.f16 %f1, %h1, %f2"),
        "sub.f64 %d1, %d2, %d3",
        "mul.rp.f32 %f1, %f2, %f3",
        "fma.rn.f32 %f1, %f2, %f3, %f4; fma.rn.relu.bf16x2 %r1, %r2, %r3, %r4; fma.rn.oob.f16 %h1, %h2, %h3, %h4",
        "mad.rn.f64 %d1, %d2, %d3, %d4",
        "div.rn.f32 %f1, %f2, %f3; div.full.f32 %f1, %f2, %f3; div.approx.ftz.f32 %f1, %f2, %f3",
        "abs.ftz.f32 %f1, %f2; abs.f16x2 %r1, %r2",
        "neg.f64 %d1, %d2; neg.bf16 %h1, %h2",
        "min.NaN.xorsign.abs.f32 %f1, %f2, %f3; @100 min.f32 %f1, %f2, %f3, %f4",
        "max.f16x2 %r1, %r2, %r3",
        "rcp.rn.f64 %d1, %d2; rcp.approx.ftz.f64 %d1, %d2",
        "sqrt.rm.f32 %f1, %f2",
        "rsqrt.approx.f32 %f1, %f2",
        "sin.approx.f32 %f1, %f2",
        "cos.approx.ftz.f32 %f1, %f2",
        "lg2.approx.f32 %f1, %f2",
        "ex2.approx.f32 %f1, %f2; ex2.approx.f16x2 %r1, %r2; ex2.approx.ftz.bf16 %h1, %h2",
        "tanh.approx.f32 %f1, %f2; tanh.approx.bf16x2 %r1, %r2",
    ),
    "Comparison, selection, logic": (
        "set.lt.u32.f32 %r1, %f1, %f2; set.ge.f16x2.f16x2 %r1, %r2, %r3",
        "setp.lt.and.s32 %p1|%p2, %r1, %r2, %p3; setp.num.f64 %p1, %d1, %d2; setp.eq.bf16x2 %p1|%p2, %r1, %r2",
        "selp.f32 %f1, %f2, %f3, %p1",
        "slct.u32.f32 %r1, %r2, %r3, %f1",
        "and.pred %p1, %p2, %p3",
        "or.b64 %rd1, %rd2, %rd3",
        "xor.b16 %h1, %h2, %h3",
        "not.b32 %r1, %r2",
        "cnot.b32 %r1, %r2",
        "lop3.b32 %r1, %r2, %r3, %r4, 0x1e; lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x1e, %p2",
        "shf.r.wrap.b32 %r1, %r2, %r3, %r4",
        "shl.b64 %rd1, %rd2, %r1",
        "shr.s16 %h1, %h2, %r1",
    ),
    "Data movement": (
        "mov.u32 %r1, %tid.x; mov.b64 {%r1,%r2}, %rd1; mov.b128 %q1, {%rd1,%rd2}; mov.u64 %rd1, g",
        "shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1; ",
        "prmt.b32.f4e %r1, %r2, %r3, %r4",
        ("ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%rd1]; ld.acquire.gpu.u32 %r1, [%rd1]; ld.volatile.shared.u8 %r1, [s]; "
        "ld.global.nc.L1::no_allocate.L2::cache_hint.L2::128B.b64 %rd2, [%rd1], %rd3; ld.relaxed.sys.global.b128 %q1, [%rd1]; "
        f"@100 ld.global.v8.b32 {EIGHT}, [%rd1]; ld.mmio.relaxed.sys.global.u32 %r1, [%rd1]; ld.shared::cluster.u32 %r1, [%r2]; "
        "mov.u64 %rd2, out; ld.param.u64 %rd1, [%rd2]"),
        "ldu.global.u32 %r1, [%rd1]",
        "st.release.gpu.global.u32 [%rd1], %r1; st.shared.v2.b64 [s], {%rd1,%rd2}; st.local.wt.b32 [l], %r1",
        f"st.async.{REMOTE}.b32 [%r1], %r2, [%r3]; @100 st.async.mmio.release.sys.global.b32 [%rd1], %r2",
        "@100 st.bulk.weak.shared::cta [%rd1], 128, 0",
        "multimem.ld_reduce.relaxed.gpu.global.add.f32 %f1, [%rd1]",
        "multimem.st.relaxed.gpu.global.f32 [%rd1], %f1",
        "multimem.red.relaxed.gpu.global.add.f32 [%rd1], %f1",
        "prefetch.global.L2::evict_last [%rd1]; prefetch.tensormap [%rd1]",
        "prefetchu.L1 [%rd1]",
        "applypriority.global.L2::evict_normal [%rd1], 128",
        "discard.global.L2 [%rd1], 128",
        ("createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd1, 0.5; "
        "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd1, [%rd2], 64, 256; createpolicy.cvt.L2.b64 %rd1, %rd2"),
        "isspacep.shared %p1, %rd1; isspacep.param::entry %p1, %rd1",
        "cvta.shared.u64 %rd1, %rd2; cvta.to.global.u64 %rd1, %rd2; cvta.param.u64 %rd1, %rd2",
        ("cvt.sat.u8.s32 %r1, %r2; cvt.rni.s32.f32 %r1, %f1; cvt.rz.f16.f32 %h1, %f1; cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; "
        "cvt.rn.f16x2.e5m2x2 %r1, %h1; @100 cvt.rn.bf16x2.e4m3x2 %r1, %h1; cvt.rna.tf32.f32 %r1, %f1; @100a cvt.rn.satfinite.e2m1x2.f32 %b1, %f1, %f2; "
        "@100a cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2"),
        "cvt.pack.sat.u8.s32.b32 %r1, %r2, %r3, %r4",
        "mapa.shared::cluster.u32 %r1, %r2, 0",
        "getctarank.shared::cluster.u32 %r1, %r2",
    ),
    "Asynchronous copies": (
        "cp.async.ca.shared.global.L2::128B [%r1], [%rd1], 4, %r2; cp.async.cg.shared.global [%r1], [%rd1], 16, %p1",
        "cp.async.commit_group; cp.async.wait_group 1; cp.async.wait_all",
        "cp.async.mbarrier.arrive.noinc.shared.b64 [%r1]",
        (f"cp.async.bulk.shared::cluster.global.{BULK} [%r1], [%rd1], %r2, [%r3]; cp.async.bulk.global.shared::cta.bulk_group [%rd1], "
        f"[%r1], 64; cp.async.bulk.{REMOTE.replace('cluster.', 'cluster.shared::cta.')} [%r1], [%r2], 64, [%r3]; "
        f"@90a cp.async.bulk.shared::cluster.global.{BULK}.multicast::cluster [%r1], [%rd1], %r2, [%r3], %h1"),
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0",
        "cp.async.bulk.prefetch.L2.global [%rd1], 64",
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 64; "
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd1, {%r1,%r2}], [%r3]"),
        (f"cp.async.bulk.tensor.1d.shared::cluster.global.tile.{BULK} [%r1], [%rd1, {{%r2}}], [%r3]; "
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1,%r2}], [%r3]; "
        f"cp.async.bulk.tensor.3d.shared::cluster.global.im2col.{BULK} [%r1], [%rd1, {{%r2,%r3,%r4}}], [%r5], {{%h1}}; "
        f"@90a cp.async.bulk.tensor.1d.shared::cluster.global.{BULK}.multicast::cluster [%r1], [%rd1, {{%r2}}], [%r3], %h1"),
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r1,%r2}]",
        ("@90a tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2; "
        "@90a tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [s], 1, %r1"),
        "@90a tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [s], 128",
        "fence.proxy.tensormap::generic.release.gpu; fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128",
    ),
    "Synchronisation": (
        "bar.sync 1, 64; bar.red.popc.u32 %r1, 0, %p1; bar.arrive 1, 64; @%p1 bar.sync %r1",
        "barrier.sync 0; barrier.red.and.pred %p1, 0, %p2",
        "bar.warp.sync -1",
        "barrier.cluster.arrive.release; barrier.cluster.wait.acquire",
        "membar.gl",
        "fence.acq_rel.gpu; fence.sc.sys; fence.acquire.sync_restrict::shared::cluster.cluster; fence.mbarrier_init.release.cluster",
        "fence.proxy.async.shared::cta; fence.proxy.alias",
        ("atom.global.add.u32 %r1, [%rd1], %r2; atom.acq_rel.sys.shared.cas.b64 %rd1, [s], %rd2, %rd3; atom.global.cas.b128 %q1, [%rd1], "
        "%q2, %q3; atom.global.exch.b128 %q1, [%rd1], %q2; atom.add.noftz.f16x2 %r1, [%rd1], %r2; "
        "atom.global.max.noftz.v2.bf16 {%h1,%h2}, [%rd1], {%h3,%h4}"),
        f"red.release.gpu.global.add.f64 [%rd1], %d1; red.global.add.v4.f32 [%rd1], {FOUR}",
        f"red.async.relaxed.cluster.{REMOTE}.add.u32 [%r1], %r2, [%r3]",
        "vote.sync.ballot.b32 %r1, %p1, -1; vote.sync.uni.pred %p1, %p2, -1",
        "match.all.sync.b64 %r1|%p1, %rd1, -1",
        "activemask.b32 %r1",
        "elect.sync %r1|%p1, -1",
        "redux.sync.add.u32 %r1, %r2, -1; @100a redux.sync.min.abs.NaN.f32 %f1, %f2, -1",
        "griddepcontrol.wait",
        "mbarrier.init.shared.b64 [s], 1; mbarrier.inval.shared.b64 [s]",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [s], 64; mbarrier.complete_tx.shared.b64 [s], 64",
        "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd1, [s], 64; mbarrier.arrive.noComplete.shared.b64 %rd1, [s], 2",
        "mbarrier.arrive_drop.shared.b64 %rd1, [s], 2",
        "mbarrier.test_wait.shared.b64 %p1, [s], %rd1; mbarrier.test_wait.parity.shared.b64 %p1, [s], %r1",
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [s], %r1, 1000",
        "mbarrier.pending_count.b64 %r1, %rd1",
        "@100 clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q1",
    ),
    "Matrices": (
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r9,%r10}, {%r1,%r2,%r3,%r4}; "
        "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r9,%r10}, {%r1,%r2,%r3,%r4}; "
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r9,%r10}, {%r1,%r2,%r3,%r4}; "
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r9,%r10}, {%r1,%r2,%r3,%r4}; "
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r9,%r10}, {%r1,%r2,%r3,%r4}; "
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%rd1,%rd2}, {%rd3}, {%rd4}, {%rd1,%rd2}"),
        "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1,%r2}, {%r3,%r4}, {%r5,%r6}, {%r1,%r2}, %r7, 0",
        f"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {FOUR}, [s]; @100a ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {{%r1,%r2}}, [s]",
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [s], {%r1,%r2}; @100a stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [s], {%r1}",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2",
        (f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {EIGHT}, [%rd1], %r9; "
        f"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {EIGHT}, {EIGHT}, {EIGHT}, {EIGHT}; "
        f"wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [s], {EIGHT}, %r9"),
        ("@90a wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1,%r2,%r3,%r4}, %rd1, %rd2, %p1, 1, -1, 0, 1; "
        "@90a wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2 {%r1,%r2}, {%r3,%r4,%r5,%r6}, %rd2, %p1, 1, 1; "
        "@90a wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8.satfinite {%r1,%r2,%r3,%r4}, %rd1, %rd2, %p1; "
        "@90a wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%r1,%r2,%r3,%r4}, %rd1, %rd2, %r5, 0, %p1, 1, 1, 0, 0"),
        "@90a wgmma.fence.sync.aligned; @90a wgmma.commit_group.sync.aligned; @90a wgmma.wait_group.sync.aligned 0",
        "@100a tcgen05.wait::ld.sync.aligned",
    ),
    "Control flow and machine": (
        "bra END; @%p1 bra.uni END",
        "call (%r1), f, (%r2)",
        "ret; exit",
        "trap",
        "brkpt",
        "nanosleep.u32 100",
        "pmevent 1",
        "@90a setmaxnreg.dec.sync.aligned.u32 24",
        "alloca.u64 %rd1, 16, 8",
        "stacksave.u64 %rd1",
        "stackrestore.u64 %rd1",
    ),
    "Textures, surfaces, video": (
        "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}]",
        "tld4.r.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}]",
        "txq.width.b32 %r1, [%rd1]",
        "istypep.texref %p1, %rd1",
        "suld.b.1d.b32.trap {%r1}, [%rd1, {%r2}]",
        "sust.b.1d.b32.trap [%rd1, {%r2}], {%r1}",
        "sured.b.add.1d.u32.trap [%rd1, {%r2}], %r1",
        "suq.width.b32 %r1, [%rd1]",
        "vadd.s32.s32.s32 %r1, %r2, %r3",
        "vsub.s32.s32.s32 %r1, %r2, %r3",
        "vabsdiff.s32.s32.s32 %r1, %r2, %r3",
        "vmin.s32.s32.s32 %r1, %r2, %r3",
        "vmax.s32.s32.s32 %r1, %r2, %r3",
        "vshl.u32.u32.u32.clamp %r1, %r2, %r3",
        "vshr.u32.u32.u32.wrap %r1, %r2, %r3",
        "vmad.s32.s32.s32 %r1, %r2, %r3, %r4",
        "vset.s32.s32.lt %r1, %r2, %r3",
        "vadd2.s32.s32.s32 %r1, %r2, %r3, %r4",
        "vset4.s32.s32.lt %r1, %r2, %r3, %r4",
    ),
    "Special registers": tuple(
        f"mov.{'u64' if name in ('%clock64', '%globaltimer') else 'pred' if name == '%is_explicit_cluster' else 'u32'} "
        f"{'%rd1' if name in ('%clock64', '%globaltimer') else '%p1' if name == '%is_explicit_cluster' else '%r1'}, {name}"
        for name in (
            "%tid.x", "%ntid.y", "%ctaid.z", "%nctaid.x", "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid",
            "%is_explicit_cluster", "%clusterid.x", "%nclusterid.x", "%cluster_ctaid.x", "%cluster_nctaid.x", "%cluster_ctarank",
            "%cluster_nctarank", "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt", "%clock", "%clock_hi",
            "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi", "%dynamic_smem_size", "%total_smem_size",
            "%aggr_smem_size", "%pm0", "%envreg0",
        )
    ),
}  # fmt: skip
"""Forms by section of the page. A string is a row; "; " separates its forms. "@100" before a form names the
architecture that it needs, sm_100; other forms are translated for sm_90."""


@dataclass(frozen=True, slots=True)
class Form:
    """PTX statements on one line, without the last semicolon, and the architecture that they need."""

    text: str
    arch: str = "sm_90"

    def module(self) -> str:
        """Return a module with this form in a kernel."""
        callee = (
            ".func (.reg .b32 %a) f(.reg .b32 %b) { mov.b32 %a, %b; ret; }\n"
            if self.text.startswith("call")
            else ""
        )
        head, entry, rest = HEAD.format(arch=self.arch).partition(".visible")
        return f"{head}{callee}{entry}{rest}{self.text};\nEND: ret; }}\n"


def rows() -> list[tuple[str, list[Form]]]:
    """Return (section, forms) of every row."""
    return [
        (section, [_form(text.strip()) for text in _cut(line)])
        for section, lines in SECTIONS.items()
        for line in lines
    ]


def _cut(line: str) -> list[str]:
    """Split a row into forms; an instruction that only computes an operand stays with the next one."""
    parts = [part for part in line.split("; ") if part.strip()]
    joined: list[str] = []
    for part in parts:
        if joined and joined[-1].startswith("mov.u64 %rd2, out"):
            joined[-1] += f"; {part}"
        else:
            joined.append(part)
    return joined


def _form(text: str) -> Form:
    if text.startswith("@") and not text.startswith("@%"):
        arch, _, rest = text.partition(" ")
        return Form(rest, f"sm_{arch[1:]}")
    return Form(text)


@functools.cache
def refusal(form: Form) -> PtxError | None:
    """Translate a form and return its `PtxError`, or None if it is supported.

    Raises `UsageError` as `flatten`.
    """
    library = Library(32, jit.host(), Sanitizers(), sealed=True)
    try:
        translate(library, flatten(parse(form.module()), "k"), arch=int(form.arch[3:].rstrip("a")))
    except PtxError as error:
        return error
    return None


def page() -> str:
    """Return the page of supported and refused forms."""
    lines = [
        "# PTX on the emulated GPU",
        "",
        "The instructions of the PTX ISA that `emulator/nv` translates, with one form of each kind. Other types and modifiers",
        "work as PTX defines them or are refused. A refusal is a `PtxError` that names the line and the instruction; nothing is",
        "ignored. Of hints (caches, priorities, policies) only the form is checked.",
        "",
        "Written by `python -m tools.reference`, which translates every form.",
    ]
    section = ""
    for name, forms in rows():
        if name != section:
            section = name
            lines += ["", f"## {name}", "", "| works | refused |", "|---|---|"]
        works, refused = (
            "<br>".join(_shown(form) for form in forms if (refusal(form) is not None) == wanted)
            for wanted in (False, True)
        )
        lines.append(f"| {works} | {refused} |")
    return "\n".join(lines) + "\n"


def _shown(form: Form) -> str:
    text = form.text.replace("|", "\\|")
    return f"`{text}`" + (f" ({form.arch})" if form.arch != "sm_90" else "")
