"""Further methods of `Tensor` with PyTorch's names, which fewer programs use. Inherited by `Tensor` alone.

Their modules load with the first use of one of their functions (`frontend.later`).

Not here: the methods that most programs use (`methods`), those that change their tensor (`in_place`).
"""

from __future__ import annotations

from frontend.later import AT_ONCE, all_later
from frontend.tensor_base import TensorBase

if AT_ONCE:
    from frontend.ops import (
        about,
        convolutions,
        determinants,
        factors,
        indexed,
        parts,
        products,
        rearranging,
        special,
        statistics,
    )
else:
    globals().update(
        all_later(
            "frontend.ops",
            "about convolutions determinants factors indexed parts products rearranging special statistics",
        )
    )


class FurtherMethods(TensorBase):
    """The methods of `Tensor` that fewer programs use."""

    __slots__ = ()

    @property
    def is_cpu(self) -> bool:
        """Whether the device is the host, "cpu"."""
        return self.expr.device.partition(":")[0] == "cpu"

    @property
    def is_cuda(self) -> bool:
        """Whether the device is an NVIDIA GPU, "nv" or an emulated one."""
        return self.expr.device.startswith("nv")

    new_zeros = about.new_zeros
    new_ones = about.new_ones
    new_empty = about.new_empty
    new_full = about.new_full
    new_tensor = about.new_tensor
    clamp_min = about.clamp_min
    clamp_max = about.clamp_max
    argwhere = about.argwhere
    nonzero_static = about.nonzero_static
    is_same_size = about.is_same_size
    is_signed = about.is_signed
    is_complex = about.is_complex
    is_conj = about.is_conj
    is_neg = about.is_neg
    is_nonzero = about.is_nonzero
    is_inference = about.is_inference
    is_pinned = about.is_pinned
    is_shared = about.is_shared
    is_contiguous = about.is_contiguous
    is_sparse = is_sparse_csr = is_quantized = is_nested = is_meta = is_mkldnn = False
    is_mps = is_xpu = is_xla = is_ipu = is_mtia = is_vulkan = is_maia = False
    get_device = about.get_device
    cuda = about.cuda
    retain_grad = about.retain_grad
    to_dense = about.conj
    conj = about.conj
    isreal = about.isreal
    adjoint = about.adjoint
    ndimension = about.ndimension
    conj_physical = about.conj
    resolve_conj = about.conj
    resolve_neg = about.conj

    mm = products.mm
    bmm = products.bmm
    mv = products.mv
    vdot = products.vdot
    outer = products.outer
    ger = products.outer
    inner = products.inner
    tensordot = products.tensordot
    addmm = products.addmm
    addmv = products.addmv
    addr = products.addr
    baddbmm = products.baddbmm
    addbmm = products.addbmm
    kron = products.kron
    cross = products.cross
    trace = products.trace
    dist = products.dist
    cov = products.cov
    corrcoef = products.corrcoef
    renorm = products.renorm

    qr = factors.qr
    solve = factors.solve
    inverse = factors.inverse
    det = determinants.det
    slogdet = determinants.slogdet
    logdet = determinants.logdet
    cholesky = factors.cholesky
    cholesky_solve = factors.cholesky_solve
    cholesky_inverse = factors.cholesky_inverse
    svd = factors.svd
    pinverse = factors.pinverse
    matrix_power = factors.matrix_power

    tile = rearranging.tile
    tensor_split = rearranging.tensor_split
    hsplit = rearranging.hsplit
    vsplit = rearranging.vsplit
    dsplit = rearranging.dsplit
    rot90 = rearranging.rot90
    diag_embed = rearranging.diag_embed
    diagflat = rearranging.diagflat
    select_scatter = rearranging.select_scatter
    diagonal_scatter = rearranging.diagonal_scatter
    slice_scatter = rearranging.slice_scatter
    narrow_copy = rearranging.narrow_copy
    diff = rearranging.diff
    sum_to_size = rearranging.sum_to_size
    broadcast_tensors = rearranging.broadcast_tensors
    equal = rearranging.equal
    fmax = rearranging.fmax
    fmin = rearranging.fmin

    split_with_sizes = parts.split
    unsafe_split = parts.split
    unsafe_split_with_sizes = parts.split
    unsafe_chunk = parts.chunk

    index_add = indexed.index_add
    index_copy = indexed.index_copy
    index_fill = indexed.index_fill
    index_reduce = indexed.index_reduce
    index_put = indexed.index_put
    put = indexed.put
    masked_scatter = indexed.masked_scatter

    kthvalue = statistics.kthvalue
    median = statistics.median
    nanmedian = statistics.nanmedian
    quantile = statistics.quantile
    nanquantile = statistics.nanquantile
    mode = statistics.mode
    msort = statistics.msort
    unique = statistics.unique
    unique_consecutive = statistics.unique_consecutive
    bincount = statistics.bincount
    histc = statistics.histc
    histogram = statistics.histogram
    searchsorted = statistics.searchsorted
    bucketize = statistics.bucketize
    isin = statistics.isin

    erfc = special.erfc
    erfinv = special.erfinv
    lgamma = special.lgamma
    digamma = special.digamma
    mvlgamma = special.mvlgamma
    i0 = special.i0
    frexp = special.frexp
    gcd = special.gcd
    lcm = special.lcm
    sgn = special.sgn
    isposinf = special.isposinf
    isneginf = special.isneginf
    logaddexp2 = special.logaddexp2
    ldexp = special.ldexp
    float_power = special.float_power
    nextafter = special.nextafter
    angle = special.angle

    max_unpool2d = convolutions.max_unpool2d
