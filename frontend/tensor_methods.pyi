"""The methods of `Tensor` for type checkers and editors. Written by `python -m tools.reference`.

The table is `frontend.methods`; at run time `frontend.members` makes the class.
"""

# ruff: noqa: PYI017 - the types of members follow from the functions

from typing import Literal, Self

from frontend.members import Maker
from frontend.ops import (
    activation,
    arithmetic,
    casts,
    convolutions,
    creation,
    decompositions,
    elementwise,
    elimination,
    extremes,
    files,
    functions,
    gather_scatter,
    indexing,
    linalg,
    losses,
    movement,
    normalization,
    products,
    properties,
    random,
    rearranging,
    reductions,
    resizing,
    scan,
    sorting,
    special,
    splitting,
    statistics,
    writing,
)
from frontend.torch import (
    factors,
    strides,
)

class Methods:
    """The methods that `frontend.ops` implements."""

    __slots__ = ()
    def __eq__(self, other: object) -> Self: ...  # type: ignore[override]  # elementwise
    def __ne__(self, other: object) -> Self: ...  # type: ignore[override]  # as above
    __hash__ = object.__hash__
    exp = exp_ = functions.exp
    exp2 = exp2_ = functions.exp2
    log = log_ = functions.log
    log2 = log2_ = functions.log2
    expm1 = expm1_ = functions.expm1
    log1p = log1p_ = functions.log1p
    log10 = log10_ = functions.log10
    sqrt = sqrt_ = functions.sqrt
    rsqrt = rsqrt_ = functions.rsqrt
    reciprocal = reciprocal_ = functions.reciprocal
    sin = sin_ = functions.sin
    cos = cos_ = functions.cos
    tan = tan_ = functions.tan
    tanh = tanh_ = functions.tanh
    erf = erf_ = functions.erf
    square = square_ = functions.square
    abs = absolute = __abs__ = abs_ = absolute_ = functions.abs
    sign = sgn = sign_ = sgn_ = functions.sign
    copysign = copysign_ = functions.copysign
    floor = floor_ = functions.floor
    ceil = ceil_ = functions.ceil
    trunc = fix = trunc_ = fix_ = functions.trunc
    round = round_ = functions.round
    isnan = functions.isnan
    isinf = functions.isinf
    isfinite = functions.isfinite
    logical_not = logical_not_ = functions.logical_not
    mul = multiply = __mul__ = __rmul__ = mul_ = multiply_ = __imul__ = elementwise.mul
    true_divide = __truediv__ = true_divide_ = __itruediv__ = arithmetic.true_div
    floor_divide = floordiv = __floordiv__ = floor_divide_ = __ifloordiv__ = arithmetic.floordiv
    remainder = mod = __mod__ = remainder_ = __imod__ = arithmetic.mod
    pow = __pow__ = pow_ = __ipow__ = arithmetic.pow
    maximum = elementwise.maximum
    minimum = elementwise.minimum
    neg = negative = __neg__ = neg_ = negative_ = elementwise.neg
    bitwise_and = __and__ = __rand__ = bitwise_and_ = __iand__ = elementwise.bitwise_and
    bitwise_or = __or__ = __ror__ = bitwise_or_ = __ior__ = elementwise.bitwise_or
    bitwise_xor = xor = __xor__ = __rxor__ = bitwise_xor_ = __ixor__ = elementwise.bitwise_xor
    bitwise_not = __invert__ = bitwise_not_ = elementwise.invert
    lt = less = __lt__ = lt_ = less_ = elementwise.lt
    gt = greater = __gt__ = gt_ = greater_ = elementwise.gt
    le = less_equal = __le__ = le_ = less_equal_ = elementwise.le
    ge = greater_equal = __ge__ = ge_ = greater_equal_ = elementwise.ge
    not_equal = ne = not_equal_ = ne_ = elementwise.ne
    eq = eq_ = elementwise.eq
    asin = arcsin = asin_ = arcsin_ = special.asin
    acos = arccos = acos_ = arccos_ = special.acos
    atan = arctan = atan_ = arctan_ = special.atan
    atan2 = arctan2 = atan2_ = arctan2_ = special.atan2
    sinh = sinh_ = special.sinh
    cosh = cosh_ = special.cosh
    asinh = arcsinh = asinh_ = arcsinh_ = special.asinh
    acosh = arccosh = acosh_ = arccosh_ = special.acosh
    atanh = arctanh = atanh_ = arctanh_ = special.atanh
    relu = relu_ = activation.relu
    relu6 = relu6_ = activation.relu6
    leaky_relu = leakyrelu = leaky_relu_ = activation.leaky_relu
    elu = elu_ = activation.elu
    sigmoid = sigmoid_ = activation.sigmoid
    logsigmoid = activation.logsigmoid
    silu = swish = silu_ = activation.silu
    quick_gelu = activation.quick_gelu
    softplus = activation.softplus
    softsign = activation.softsign
    mish = mish_ = activation.mish
    hardsigmoid = hardsigmoid_ = activation.hardsigmoid
    hardswish = hardswish_ = activation.hardswish
    hardtanh = hardtanh_ = activation.hardtanh
    __add__ = __radd__ = __iadd__ = elementwise.add
    __sub__ = __isub__ = elementwise.sub
    gelu = activation.gelu
    celu = celu_ = activation.celu
    selu = selu_ = activation.selu
    hardshrink = activation.hardshrink
    softshrink = activation.softshrink
    tanhshrink = activation.tanhshrink
    threshold = threshold_ = activation.threshold
    glu = activation.glu
    prelu = activation.prelu
    div = divide = div_ = divide_ = arithmetic.div
    __rtruediv__ = arithmetic.rdiv
    __rfloordiv__ = arithmetic.rfloordiv
    __rmod__ = arithmetic.rmod
    __rpow__ = arithmetic.rpow
    view = casts.view
    cast = casts.cast
    float = casts.float
    double = casts.double
    half = casts.half
    bfloat16 = casts.bfloat16
    type_as = casts.type_as
    type = casts.type
    bitcast = casts.bitcast
    int = casts.int
    long = casts.long
    bool = casts.bool
    short = casts.short
    char = casts.char
    byte = casts.byte
    conv2d = convolutions.conv2d
    conv_transpose2d = convolutions.conv_transpose2d
    max_pool2d = convolutions.max_pool2d
    avg_pool2d = convolutions.avg_pool2d
    max_unpool2d = convolutions.max_unpool2d
    full_like = creation.full_like
    zeros_like = creation.zeros_like
    empty_like = creation.empty_like
    ones_like = creation.ones_like
    one_hot = creation.one_hot
    new_zeros = creation.new_zeros
    new_ones = creation.new_ones
    new_empty = creation.new_empty
    new_full = creation.new_full
    new_tensor = creation.new_tensor
    new = creation.new
    norm = decompositions.norm
    qr = decompositions.qr
    cholesky = decompositions.cholesky
    cholesky_solve = decompositions.cholesky_solve
    cholesky_inverse = decompositions.cholesky_inverse
    svd = decompositions.svd
    pinverse = decompositions.pinverse
    matrix_power = decompositions.matrix_power
    solve = elimination.solve
    inverse = elimination.inverse
    det = elimination.det
    slogdet = elimination.slogdet
    logdet = elimination.logdet
    matrix_exp = factors.matrix_exp
    lu = factors.lu
    lu_solve = factors.lu_solve
    orgqr = factors.orgqr
    triangular_solve = factors.triangular_solve
    polygamma = polygamma_ = factors.polygamma
    positive = __pos__ = elementwise.pos
    where = elementwise.where_of
    masked_fill = masked_fill_ = elementwise.masked_fill
    clip = clamp = clip_ = clamp_ = elementwise.clip
    lerp = lerp_ = elementwise.lerp
    __rsub__ = elementwise.rsub
    lshift = bitwise_left_shift = __lshift__ = bitwise_left_shift_ = __ilshift__ = elementwise.lshift
    rshift = bitwise_right_shift = __rshift__ = bitwise_right_shift_ = __irshift__ = elementwise.rshift
    isclose = elementwise.isclose
    allclose = elementwise.allclose
    __rlshift__ = elementwise.rlshift
    __rrshift__ = elementwise.rrshift
    max = extremes.max
    min = extremes.min
    amax = extremes.amax
    amin = extremes.amin
    aminmax = extremes.aminmax
    add = add_ = functions.plus
    sub = subtract = sub_ = subtract_ = functions.minus
    fmod = fmod_ = functions.fmod
    logaddexp = functions.logaddexp
    hypot = hypot_ = functions.hypot
    xlogy = xlogy_ = functions.xlogy
    addcmul = addcmul_ = functions.addcmul
    addcdiv = addcdiv_ = functions.addcdiv
    frac = frac_ = functions.frac
    deg2rad = deg2rad_ = functions.deg2rad
    rad2deg = rad2deg_ = functions.rad2deg
    sinc = sinc_ = functions.sinc
    nan_to_num = nan_to_num_ = functions.nan_to_num
    logit = logit_ = functions.logit
    heaviside = heaviside_ = functions.heaviside
    clamp_min = clamp_min_ = functions.clamp_min
    clamp_max = clamp_max_ = functions.clamp_max
    to_dense = conj = conj_physical = resolve_conj = resolve_neg = conj_physical_ = functions.conj
    logical_and = logical_and_ = functions.logical_and
    logical_or = logical_or_ = functions.logical_or
    logical_xor = logical_xor_ = functions.logical_xor
    signbit = functions.signbit
    isreal = functions.isreal
    gather = gather_scatter.gather
    take = gather_scatter.take
    index_select = gather_scatter.index_select
    scatter = scatter_ = gather_scatter.scatter
    scatter_add = scatter_add_ = gather_scatter.scatter_add
    scatter_reduce = scatter_reduce_ = gather_scatter.scatter_reduce
    take_along_dim = gather_scatter.take_along_dim
    masked_select = gather_scatter.masked_select
    nonzero = gather_scatter.nonzero
    argwhere = gather_scatter.argwhere
    nonzero_static = gather_scatter.nonzero_static
    __getitem__ = indexing.getitem
    tril = tril_ = linalg.tril
    triu = triu_ = linalg.triu
    diag = linalg.diag
    diagonal = linalg.diagonal
    matmul = __matmul__ = __imatmul__ = linalg.matmul
    dot = linalg.dot
    linear = linalg.linear
    adjoint = linalg.adjoint
    __rmatmul__ = linalg.rmatmul
    fill_diagonal_ = linalg.fill_diagonal
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
    reshape = resize = movement.reshape
    permute = movement.permute
    transpose = swapaxes = swapdims = movement.transpose
    expand = broadcast_to = movement.expand
    flip = movement.flip
    shrink = movement.shrink
    squeeze = movement.squeeze
    unsqueeze = movement.unsqueeze
    flatten = movement.flatten
    unflatten = movement.unflatten
    repeat = movement.repeat
    repeat_interleave = movement.repeat_interleave
    windows = movement.windows
    unfold = movement.unfold
    movedim = moveaxis = movement.movedim
    narrow = movement.narrow
    select = movement.select
    t = movement.t
    ravel = movement.ravel
    view_as = reshape_as = resize_as = movement.view_as
    expand_as = movement.expand_as
    fliplr = movement.fliplr
    flipud = movement.flipud
    meshgrid = movement.meshgrid
    softmax = normalization.softmax
    softmin = normalization.softmin
    log_softmax = normalization.log_softmax
    layernorm = normalization.layernorm
    rmsnorm = normalization.rmsnorm
    batchnorm = normalization.batchnorm
    dropout = normalization.dropout
    scaled_dot_product_attention = normalization.scaled_dot_product_attention
    sequential = normalization.sequential
    mm = products.mm
    bmm = products.bmm
    mv = products.mv
    vdot = products.vdot
    outer = ger = products.outer
    inner = products.inner
    tensordot = products.tensordot
    addmm = addmm_ = products.addmm
    addmv = addmv_ = products.addmv
    addr = addr_ = products.addr
    baddbmm = baddbmm_ = products.baddbmm
    addbmm = addbmm_ = products.addbmm
    kron = products.kron
    cross = products.cross
    trace = products.trace
    dist = products.dist
    cov = products.cov
    corrcoef = products.corrcoef
    renorm = renorm_ = products.renorm
    contiguous = properties.contiguous
    is_same_size = properties.is_same_size
    is_signed = properties.is_signed
    is_complex = properties.is_complex
    is_conj = properties.is_conj
    is_neg = properties.is_neg
    is_nonzero = properties.is_nonzero
    is_inference = properties.is_inference
    is_pinned = properties.is_pinned
    is_shared = properties.is_shared
    is_distributed = properties.is_distributed
    dim_order = properties.dim_order
    pin_memory = properties.pin_memory
    is_contiguous = properties.is_contiguous
    get_device = properties.get_device
    cuda = properties.cuda
    retain_grad = properties.retain_grad
    ndimension = properties.ndimension
    storage_offset = properties.storage_offset
    is_set_to = properties.is_set_to
    exponential_ = random.exponential
    log_normal_ = random.log_normal
    cauchy_ = random.cauchy
    geometric_ = random.geometric
    random_ = random.whole_numbers
    rand_like = random.rand_like
    randn_like = random.randn_like
    multinomial = random.multinomial
    bernoulli = random.bernoulli
    bernoulli_ = random.trials
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
    fmax = rearranging.fmax
    fmin = rearranging.fmin
    equal = rearranging.equal
    sum = reductions.sum
    prod = reductions.prod
    mean = reductions.mean
    var = reductions.var
    std = reductions.std
    var_mean = reductions.var_mean
    std_mean = reductions.std_mean
    nansum = reductions.nansum
    nanmean = reductions.nanmean
    logsumexp = reductions.logsumexp
    normalize = reductions.normalize
    any = reductions.any
    all = reductions.all
    argmax = reductions.argmax
    argmin = reductions.argmin
    count_nonzero = reductions.count_nonzero
    pad = pad2d = resizing.pad
    interpolate = resizing.interpolate
    cumsum = cumsum_ = scan.cumsum
    cumprod = cumprod_ = scan.cumprod
    cummax = scan.cummax
    cummin = scan.cummin
    logcumsumexp = scan.logcumsumexp
    sort = sorting.sort
    topk = sorting.topk
    argsort = sorting.argsort
    erfc = erfc_ = special.erfc
    erfinv = erfinv_ = special.erfinv
    lgamma = lgamma_ = special.lgamma
    digamma = digamma_ = special.digamma
    mvlgamma = mvlgamma_ = special.mvlgamma
    i0 = i0_ = special.i0
    frexp = special.frexp
    logaddexp2 = special.logaddexp2
    ldexp = ldexp_ = special.ldexp
    float_power = float_power_ = special.float_power
    nextafter = nextafter_ = special.nextafter
    angle = special.angle
    gcd = gcd_ = special.gcd
    lcm = lcm_ = special.lcm
    isposinf = special.isposinf
    isneginf = special.isneginf
    split = split_with_sizes = unsafe_split = unsafe_split_with_sizes = splitting.split
    chunk = unsafe_chunk = splitting.chunk
    unbind = splitting.unbind
    cat = concat = concatenate = splitting.cat
    stack = splitting.stack
    roll = splitting.roll
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
    as_strided = strides.as_strided
    as_strided_scatter = strides.as_strided_scatter
    stride = strides.stride
    new_empty_strided = strides.new_empty_strided
    apply_ = map_ = map2_ = strides.mapped
    resize_ = resize_as_ = strides.resized
    as_strided_ = strides.as_strided
    squeeze_ = movement.squeeze
    unsqueeze_ = movement.unsqueeze
    t_ = movement.t
    transpose_ = swapaxes_ = swapdims_ = movement.transpose
    index_add = index_add_ = writing.index_add
    index_copy = index_copy_ = writing.index_copy
    index_fill = index_fill_ = writing.index_fill
    index_reduce = index_reduce_ = writing.index_reduce
    index_put = index_put_ = writing.index_put
    put = put_ = writing.put
    masked_scatter = masked_scatter_ = writing.masked_scatter
    __setitem__ = writing.setitem
    zero_ = writing.zero_
    fill_ = writing.fill_
    copy_ = writing.copy_
    uniform_ = writing.uniform_
    normal_ = writing.normal_
    detach_ = writing.detach_
    linspace = Maker(creation.linspace)
    eye = Maker(creation.eye)
    from_url = Maker(files.from_url)
    randint = Maker(random.randint)
    uniform = Maker(random.uniform)
    normal = Maker(random.normal)
    scaled_uniform = Maker(random.scaled_uniform)
    glorot_uniform = xavier_uniform = Maker(random.glorot_uniform)
    kaiming_uniform = Maker(random.kaiming_uniform)
    kaiming_normal = Maker(random.kaiming_normal)
    randperm = Maker(random.randperm)
    full = Maker(creation.full)
    zeros = Maker(creation.zeros)
    ones = Maker(creation.ones)
    empty = Maker(creation.empty)
    arange = Maker(creation.arange)
    rand = Maker(random.rand)
    randn = Maker(random.randn)
    einsum = staticmethod(linalg.einsum)
    manual_seed = staticmethod(random.manual_seed)
    is_sparse: Literal[False]
    is_sparse_csr: Literal[False]
    is_quantized: Literal[False]
    is_nested: Literal[False]
    is_meta: Literal[False]
    is_mkldnn: Literal[False]
    is_mps: Literal[False]
    is_xpu: Literal[False]
    is_xla: Literal[False]
    is_ipu: Literal[False]
    is_mtia: Literal[False]
    is_vulkan: Literal[False]
    is_maia: Literal[False]
    volatile: Literal[False]
