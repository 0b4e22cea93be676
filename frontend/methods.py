"""The list of tensor methods, for type checkers and editors. Inherited by `Tensor` alone.

Each name refers to a function in `frontend.ops`, whose docstring is its contract; `functions.Functions` has
the elementwise functions. They are assigned one by one so that type checkers see the names. Modules that
a program may not need load with the first use of one of their functions (`frontend.later`).

Not here: operators (`operators`), properties and conversions (`tensor`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from types import MethodType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec

from frontend.arg_aliases import accepts_aliases
from frontend.later import AT_ONCE, Item, all_later, later, static
from frontend.ops import casts, creation, division, elementwise, functions, movement
from frontend.ops.functions import Functions
from frontend.tensor_base import T
from frontend.trace import has_variable

if AT_ONCE:
    from frontend.ops import (
        about,
        activation,
        along,
        combined,
        convolutions,
        diagonals,
        extremes,
        factors,
        files,
        indexed,
        linalg,
        losses,
        nnops,
        padding,
        parts,
        powers,
        products,
        random,
        rearranging,
        reduce,
        resizing,
        sampling,
        scan,
        selection,
        sorting,
        special,
        statistics,
    )
    from frontend.symbolic import rules
else:
    globals().update(
        all_later(
            "frontend.ops",
            "about activation along combined convolutions diagonals extremes factors files indexed linalg "
            "losses nnops padding parts powers products random rearranging reduce resizing sampling scan "
            "selection sorting special statistics",
        )
    )
    rules = later("frontend.symbolic.rules")

P = ParamSpec("P")


def sized(fn: Callable[Concatenate[type[Any], P], Any]) -> Callable[Concatenate[type[Any], P], Any]:
    """Let a function that makes a tensor of a shape take bound variables as sizes."""

    @wraps(fn)
    def call(cls: type[Any], /, *args: P.args, **names: P.kwargs) -> Any:
        if has_variable(args):
            return rules.made_with(fn, cls, args, names)
        return fn(cls, *args, **names)

    return call


class Maker(Generic[P]):
    """A class method whose result has the class that it is called on, also for type checkers.

    With `takes_variables` it takes bound variables as sizes.
    """

    def __init__(
        self, fn: Callable[Concatenate[type[Any], P], Any], *, takes_variables: bool = False
    ) -> None:
        self._fn: Any = fn
        self._takes_variables = takes_variables

    @cached_property
    def __func__(self) -> Callable[Concatenate[type[Any], P], Any]:
        """The function, which gets the class first."""
        fn: Any = self._fn.load() if isinstance(self._fn, Item) else self._fn
        return accepts_aliases(sized(fn) if self._takes_variables else fn)

    def __get__(self, instance: object, owner: type[T]) -> Callable[P, T]:
        return MethodType(self.__func__, owner)


class Methods(Functions):
    """The methods of `Tensor` that `frontend.ops` implements."""

    __slots__ = ()
    symbolic_rules: ClassVar[Mapping[str, Callable[..., Any]]] = rules.RULES

    full = Maker(creation.full, takes_variables=True)
    zeros = Maker(creation.zeros, takes_variables=True)
    ones = Maker(creation.ones, takes_variables=True)
    empty = Maker(creation.empty, takes_variables=True)
    arange = Maker(creation.arange, takes_variables=True)
    linspace = Maker(creation.linspace)
    eye = Maker(creation.eye)
    from_url = Maker(files.from_url)
    rand = Maker(random.rand, takes_variables=True)
    randn = Maker(random.randn, takes_variables=True)
    randint = Maker(random.randint)
    uniform = Maker(random.uniform)
    normal = Maker(random.normal)
    scaled_uniform = Maker(random.scaled_uniform)
    glorot_uniform = Maker(random.glorot_uniform)
    xavier_uniform = Maker(random.glorot_uniform)
    kaiming_uniform = Maker(random.kaiming_uniform)
    kaiming_normal = Maker(random.kaiming_normal)
    randperm = Maker(sampling.randperm)
    manual_seed = static(random.manual_seed)
    einsum = static(linalg.einsum)
    full_like = creation.full_like
    zeros_like = creation.zeros_like
    empty_like = creation.empty_like
    ones_like = creation.ones_like
    rand_like = random.rand_like
    randn_like = random.randn_like
    multinomial = sampling.multinomial
    bernoulli = sampling.bernoulli

    add = combined.plus
    sub = subtract = combined.minus
    mul = multiply = elementwise.mul
    div = divide = division.div
    true_divide = division.true_div
    floor_divide = floordiv = division.floordiv
    remainder = mod = division.mod
    fmod = combined.fmod
    pow = powers.pow
    maximum = elementwise.maximum
    minimum = elementwise.minimum
    neg = negative = elementwise.neg
    positive = elementwise.pos
    absolute = functions.abs
    fix = functions.trunc
    bitwise_and = elementwise.bitwise_and
    bitwise_or = elementwise.bitwise_or
    bitwise_xor = xor = elementwise.bitwise_xor
    bitwise_not = elementwise.invert
    lshift = bitwise_left_shift = elementwise.lshift
    rshift = bitwise_right_shift = elementwise.rshift
    lt = less = elementwise.lt
    gt = greater = elementwise.gt
    le = less_equal = elementwise.le
    ge = greater_equal = elementwise.ge
    not_equal = ne = elementwise.ne
    eq = elementwise.eq
    isclose = elementwise.isclose
    allclose = elementwise.allclose
    where = elementwise.where
    masked_fill = elementwise.masked_fill
    clip = clamp = elementwise.clip
    lerp = elementwise.lerp

    asin = arcsin = special.asin
    acos = arccos = special.acos
    atan = arctan = special.atan
    atan2 = arctan2 = special.atan2
    sinh = special.sinh
    cosh = special.cosh
    asinh = arcsinh = special.asinh
    acosh = arccosh = special.acosh
    atanh = arctanh = special.atanh
    logaddexp = combined.logaddexp
    hypot = combined.hypot
    logical_and = combined.logical_and
    logical_or = combined.logical_or
    logical_xor = combined.logical_xor
    xlogy = combined.xlogy
    addcmul = combined.addcmul
    addcdiv = combined.addcdiv
    frac = combined.frac
    deg2rad = combined.deg2rad
    rad2deg = combined.rad2deg
    sinc = combined.sinc
    signbit = combined.signbit
    nan_to_num = combined.nan_to_num
    logit = combined.logit
    heaviside = combined.heaviside

    relu = activation.relu
    relu6 = activation.relu6
    leaky_relu = leakyrelu = activation.leaky_relu
    elu = activation.elu
    sigmoid = activation.sigmoid
    logsigmoid = activation.logsigmoid
    silu = swish = activation.silu
    gelu = activation.gelu
    quick_gelu = activation.quick_gelu
    softplus = activation.softplus
    softsign = activation.softsign
    mish = activation.mish
    hardsigmoid = activation.hardsigmoid
    hardswish = activation.hardswish
    hardtanh = activation.hardtanh
    celu = activation.celu
    selu = activation.selu
    hardshrink = activation.hardshrink
    softshrink = activation.softshrink
    tanhshrink = activation.tanhshrink
    threshold = activation.threshold
    glu = activation.glu
    prelu = activation.prelu

    reshape = movement.reshape
    view = casts.view
    permute = movement.permute
    transpose = swapaxes = swapdims = movement.transpose
    expand = broadcast_to = movement.expand
    flip = movement.flip
    shrink = movement.shrink
    pad = pad2d = padding.pad
    squeeze = movement.squeeze
    unsqueeze = movement.unsqueeze
    flatten = movement.flatten
    unflatten = movement.unflatten
    repeat = movement.repeat
    repeat_interleave = movement.repeat_interleave
    split = split_with_sizes = unsafe_split = unsafe_split_with_sizes = parts.split
    chunk = unsafe_chunk = parts.chunk
    unbind = parts.unbind
    cat = concat = concatenate = parts.cat
    stack = parts.stack
    roll = parts.roll
    tril = diagonals.tril
    triu = diagonals.triu
    diag = diagonals.diag
    contiguous = movement.contiguous
    windows = movement.windows
    unfold = movement.unfold
    movedim = moveaxis = movement.movedim
    narrow = movement.narrow
    select = movement.select
    t = movement.t
    ravel = movement.ravel
    view_as = reshape_as = movement.view_as
    expand_as = movement.expand_as
    fliplr = movement.fliplr
    flipud = movement.flipud
    meshgrid = movement.meshgrid

    sum = reduce.sum
    prod = reduce.prod
    max = extremes.max
    min = extremes.min
    amax = extremes.amax
    amin = extremes.amin
    aminmax = extremes.aminmax
    any = reduce.any
    all = reduce.all
    mean = reduce.mean
    var = reduce.var
    std = reduce.std
    var_mean = reduce.var_mean
    std_mean = reduce.std_mean
    nansum = reduce.nansum
    nanmean = reduce.nanmean
    norm = factors.norm
    logsumexp = reduce.logsumexp
    argmax = reduce.argmax
    argmin = reduce.argmin
    cumsum = scan.cumsum
    cumprod = scan.cumprod
    cummax = scan.cummax
    cummin = scan.cummin
    logcumsumexp = scan.logcumsumexp
    sort = sorting.sort
    argsort = sorting.argsort
    topk = sorting.topk
    normalize = reduce.normalize
    count_nonzero = reduce.count_nonzero

    gather = along.gather
    take = along.take
    index_select = along.index_select
    scatter = along.scatter
    scatter_add = along.scatter_add
    scatter_reduce = along.scatter_reduce
    take_along_dim = along.take_along_dim
    masked_select = selection.masked_select
    nonzero = selection.nonzero
    diagonal = diagonals.diagonal

    matmul = linalg.matmul
    dot = linalg.dot
    linear = linalg.linear

    one_hot = creation.one_hot
    conv2d = convolutions.conv2d
    conv_transpose2d = convolutions.conv_transpose2d
    max_pool2d = convolutions.max_pool2d
    avg_pool2d = convolutions.avg_pool2d
    interpolate = resizing.interpolate
    softmax = nnops.softmax
    softmin = nnops.softmin
    log_softmax = nnops.log_softmax
    layernorm = nnops.layernorm
    rmsnorm = nnops.rmsnorm
    batchnorm = nnops.batchnorm
    cross_entropy = losses.cross_entropy
    sparse_categorical_crossentropy = losses.sparse_categorical_crossentropy
    nll_loss = losses.nll_loss
    binary_crossentropy = binary_cross_entropy = losses.binary_crossentropy
    binary_crossentropy_logits = binary_cross_entropy_with_logits = losses.binary_crossentropy_logits
    mse_loss = losses.mse_loss
    l1_loss = losses.l1_loss
    smooth_l1_loss = losses.smooth_l1_loss
    huber_loss = losses.huber_loss
    kl_div = losses.kl_div
    dropout = nnops.dropout
    scaled_dot_product_attention = nnops.scaled_dot_product_attention
    sequential = nnops.sequential

    cast = casts.cast
    bitcast = casts.bitcast
    float = casts.float
    double = casts.double
    half = casts.half
    bfloat16 = casts.bfloat16
    int = casts.int
    long = casts.long
    bool = casts.bool
    short = casts.short
    char = casts.char
    byte = casts.byte
    type_as = casts.type_as
    type = casts.type

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
    to_dense = conj = conj_physical = resolve_conj = resolve_neg = about.conj
    isreal = about.isreal
    adjoint = about.adjoint
    ndimension = about.ndimension

    mm = products.mm
    bmm = products.bmm
    mv = products.mv
    vdot = products.vdot
    outer = ger = products.outer
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
    det = factors.det
    slogdet = factors.slogdet
    logdet = factors.logdet
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
