"""The methods of `Tensor`: one table, a row for each function.

The table gives the class that users call (`members`), the names that type checkers and editors see
(`tensor_methods.pyi`), the reference page (docs/reference/tensor.md) and cases of the tests. A function is in
a module of `frontend.ops` or `frontend.torch`, which loads when a name is first used; its docstring is the
contract of the method.

To add a method: docs/how-to/add-a-tensor-method.md.

Not here: properties and conversions (`tensor`), gradients of primitives (`frontend.autograd`), methods that
other array libraries call (`exchange`). Next: `members`.
"""

from __future__ import annotations

from re import search
from typing import Final, NamedTuple

from compiler.ir.ops import ANY, BITS, FLOATS, NUMBERS

METHOD: Final = "method"
"""A function of a tensor."""
MAKER: Final = "maker"
"""A function of the class, which makes a tensor."""
SIZED_MAKER: Final = "sized maker"
"""A maker that takes bound variables as sizes."""
STATIC: Final = "static"
"""A function of neither."""
RESHAPING: Final = "reshaping"
"""A function of a tensor whose methods in place give the tensor another shape."""
ALL: Final = (-2.0, 2.0)
"""A domain: the least and the greatest number with which tests call a function, as the two below."""
POSITIVE: Final = (0.3, 3.0)
INNER: Final = (-0.9, 0.9)


class MethodRow(NamedTuple):
    """A function of `frontend.ops`, and the methods of `Tensor` that it is.

    `function` is "module.name" or "torch.module.name". `names` are separated by spaces. `add(_)` means two
    methods: `add`, and `add_`, which assigns the result to its tensor; `(add_)` means the second alone.
    `kind` is one of the constants above.

    Tests read the other fields. `differentiable`: whether gradients flow through a method; makers have none.
    `oracle` is an expression in NumPy (`np`), `math` and the operands x and y. It gives the values of an
    elementwise function for dtypes of `kinds` (`DType.kind`); "": there is no oracle. Gradients are compared
    with central differences at numbers of `domain`. If the domain is positive, all test numbers are positive.
    """

    function: str
    names: str
    kind: str = METHOD
    differentiable: bool = True
    oracle: str = ""
    domain: tuple[float, float] = ALL
    kinds: frozenset[str] = FLOATS

    @property
    def own(self) -> str:
        """The name of the function in its module."""
        return self.function.rpartition(".")[2]

    @property
    def operands(self) -> int:
        """How many operands the oracle has: 1 or 2."""
        return 2 if search(r"\by\b", self.oracle) else 1

    @property
    def plain(self) -> list[str]:
        """The names of methods that return a new tensor, operators included."""
        return [name.removesuffix("(_)") for name in self.names.split() if name[0] != "("]

    @property
    def changing(self) -> list[str]:
        """The names of methods that change their tensor by assigning the result."""
        every = [name.replace("(_)", "_") for name in self.names.split() if name[-1] == ")"]
        return [name.strip("()") for name in every]


def _rows(module: str, words: str, kind: str = METHOD, *, differentiable: bool = True) -> list[MethodRow]:
    """Return a row for each word, without an oracle.

    A word has the names of a method, separated by commas: `sub(_),subtract(_)`. The function has the first
    name, or the name before a `=`: `minus=sub(_),subtract(_)`.
    """
    found = []
    for word in words.split():
        own, _, names = word.rpartition("=")
        own = own or names.partition(",")[0].removesuffix("(_)")
        found.append(MethodRow(f"{module}.{own}", names.replace(",", " "), kind, differentiable))
    return found


FALSE: Final = (
    *("is_sparse", "is_sparse_csr", "is_quantized", "is_nested", "is_meta", "is_mkldnn", "is_mps", "is_xpu"),
    *("is_xla", "is_ipu", "is_mtia", "is_vulkan", "is_maia"),
    "volatile",
)
"""Properties of PyTorch's tensors that are False for every tensor here."""
METHODS: Final = (
    # elementwise functions with an oracle
    MethodRow("functions.exp", "exp(_)", oracle="np.exp(x)"),
    MethodRow("functions.exp2", "exp2(_)", oracle="np.exp2(x)"),
    MethodRow("functions.log", "log(_)", oracle="np.log(x)", domain=POSITIVE),
    MethodRow("functions.log2", "log2(_)", oracle="np.log2(x)", domain=POSITIVE),
    MethodRow("functions.expm1", "expm1(_)", oracle="np.expm1(x)"),
    MethodRow("functions.log1p", "log1p(_)", oracle="np.log1p(x)", domain=POSITIVE),
    MethodRow("functions.log10", "log10(_)", oracle="np.log10(x)", domain=POSITIVE),
    MethodRow("functions.sqrt", "sqrt(_)", oracle="np.sqrt(x)", domain=POSITIVE),
    MethodRow("functions.rsqrt", "rsqrt(_)", oracle="1 / np.sqrt(x)", domain=POSITIVE),
    MethodRow("functions.reciprocal", "reciprocal(_)", oracle="1 / x"),
    MethodRow("functions.sin", "sin(_)", oracle="np.sin(x)"),
    MethodRow("functions.cos", "cos(_)", oracle="np.cos(x)"),
    MethodRow("functions.tan", "tan(_)", oracle="np.tan(x)"),
    MethodRow("functions.tanh", "tanh(_)", oracle="np.tanh(x)"),
    MethodRow("functions.erf", "erf(_)", oracle="np.vectorize(math.erf)(x).astype(x.dtype)"),
    MethodRow("functions.square", "square(_)", oracle="np.square(x)", kinds=NUMBERS),
    MethodRow("functions.abs", "abs(_) absolute(_) __abs__", oracle="np.abs(x)", kinds=NUMBERS),
    MethodRow("functions.sign", "sign(_) sgn(_)", oracle="np.sign(x)", kinds=NUMBERS),
    MethodRow("functions.copysign", "copysign(_)", oracle="np.copysign(x, y)"),
    MethodRow("functions.floor", "floor(_)", oracle="np.floor(x)", kinds=NUMBERS),
    MethodRow("functions.ceil", "ceil(_)", oracle="np.ceil(x)", kinds=NUMBERS),
    MethodRow("functions.trunc", "trunc(_) fix(_)", oracle="np.trunc(x)", kinds=NUMBERS),
    MethodRow("functions.round", "round(_)", oracle="np.rint(x).astype(x.dtype)", kinds=NUMBERS),
    MethodRow("functions.isnan", "isnan", differentiable=False, oracle="np.isnan(x)", kinds=ANY),
    MethodRow("functions.isinf", "isinf", differentiable=False, oracle="np.isinf(x)", kinds=ANY),
    MethodRow("functions.isfinite", "isfinite", differentiable=False, oracle="np.isfinite(x)", kinds=ANY),
    MethodRow("functions.logical_not", "logical_not(_)",
               differentiable=False, oracle="np.logical_not(x)", kinds=ANY),
    MethodRow("elementwise.mul", "mul(_) multiply(_) __mul__ __rmul__ (__imul__)",
               oracle="x * y", kinds=NUMBERS),
    MethodRow("arithmetic.true_div", "true_divide(_) __truediv__ (__itruediv__)", oracle="x / y"),
    MethodRow("arithmetic.floordiv", "floor_divide(_) floordiv __floordiv__ (__ifloordiv__)",
               oracle="x // y", kinds=NUMBERS),
    MethodRow("arithmetic.mod", "remainder(_) mod __mod__ (__imod__)", oracle="x % y", kinds=NUMBERS),
    MethodRow("arithmetic.pow", "pow(_) __pow__ (__ipow__)", oracle="np.power(x, y)", domain=POSITIVE),
    MethodRow("elementwise.maximum", "maximum", oracle="np.maximum(x, y)", kinds=NUMBERS),
    MethodRow("elementwise.minimum", "minimum", oracle="np.minimum(x, y)", kinds=NUMBERS),
    MethodRow("elementwise.neg", "neg(_) negative(_) __neg__", oracle="-x", kinds=NUMBERS),
    MethodRow("elementwise.bitwise_and", "bitwise_and(_) __and__ __rand__ (__iand__)",
               differentiable=False, oracle="x & y", kinds=BITS),
    MethodRow("elementwise.bitwise_or", "bitwise_or(_) __or__ __ror__ (__ior__)",
               differentiable=False, oracle="x | y", kinds=BITS),
    MethodRow("elementwise.bitwise_xor", "bitwise_xor(_) xor __xor__ __rxor__ (__ixor__)",
               differentiable=False, oracle="x ^ y", kinds=BITS),
    MethodRow("elementwise.invert", "bitwise_not(_) __invert__",
               differentiable=False, oracle="~x", kinds=BITS),
    MethodRow("elementwise.lt", "lt(_) less(_) __lt__", differentiable=False, oracle="x < y", kinds=NUMBERS),
    MethodRow("elementwise.gt", "gt(_) greater(_) __gt__",
               differentiable=False, oracle="x > y", kinds=NUMBERS),
    MethodRow("elementwise.le", "le(_) less_equal(_) __le__",
               differentiable=False, oracle="x <= y", kinds=NUMBERS),
    MethodRow("elementwise.ge", "ge(_) greater_equal(_) __ge__",
               differentiable=False, oracle="x >= y", kinds=NUMBERS),
    MethodRow("elementwise.ne", "not_equal(_) ne(_) __ne__",
               differentiable=False, oracle="x != y", kinds=NUMBERS),
    MethodRow("elementwise.eq", "eq(_) __eq__", differentiable=False, oracle="x == y", kinds=NUMBERS),
    MethodRow("special.asin", "asin(_) arcsin(_)", oracle="np.arcsin(x)", domain=INNER),
    MethodRow("special.acos", "acos(_) arccos(_)", oracle="np.arccos(x)", domain=INNER),
    MethodRow("special.atan", "atan(_) arctan(_)", oracle="np.arctan(x)"),
    MethodRow("special.atan2", "atan2(_) arctan2(_)", oracle="np.arctan2(x, y)"),
    MethodRow("special.sinh", "sinh(_)", oracle="np.sinh(x)"),
    MethodRow("special.cosh", "cosh(_)", oracle="np.cosh(x)"),
    MethodRow("special.asinh", "asinh(_) arcsinh(_)", oracle="np.arcsinh(x)"),
    MethodRow("special.acosh", "acosh(_) arccosh(_)", oracle="np.arccosh(x)", domain=(1.1, 3.0)),
    MethodRow("special.atanh", "atanh(_) arctanh(_)", oracle="np.arctanh(x)", domain=INNER),
    MethodRow("activation.relu", "relu(_)", oracle="np.maximum(x, 0)"),
    MethodRow("activation.relu6", "relu6(_)", oracle="np.clip(x, 0, 6)"),
    MethodRow("activation.leaky_relu", "leaky_relu(_) leakyrelu",
               oracle="np.where(x < 0, x.dtype.type(0.01) * x, x)"),
    MethodRow("activation.elu", "elu(_)", oracle="np.where(x < 0, np.expm1(np.minimum(x, 0)), x)"),
    MethodRow("activation.sigmoid", "sigmoid(_)", oracle="1 / (1 + np.exp(-x))"),
    MethodRow("activation.logsigmoid", "logsigmoid", oracle="-np.log1p(np.exp(-x))"),
    MethodRow("activation.silu", "silu(_) swish", oracle="x / (1 + np.exp(-x))"),
    MethodRow("activation.quick_gelu", "quick_gelu", oracle="x / (1 + np.exp(-np.float32(1.702) * x))"),
    MethodRow("activation.softplus", "softplus", oracle="np.log1p(np.exp(x))"),
    MethodRow("activation.softsign", "softsign", oracle="x / (1 + np.abs(x))"),
    MethodRow("activation.mish", "mish(_)", oracle="x * np.tanh(np.log1p(np.exp(x)))"),
    MethodRow("activation.hardsigmoid", "hardsigmoid(_)", oracle="np.clip(x / 6 + x.dtype.type(0.5), 0, 1)"),
    MethodRow("activation.hardswish", "hardswish(_)", oracle="x * np.clip(x + 3, 0, 6) / 6"),
    MethodRow("activation.hardtanh", "hardtanh(_)", oracle="np.clip(x, -1, 1)"),
    MethodRow("elementwise.add", "__add__ __radd__ (__iadd__)", oracle="x + y", kinds=NUMBERS),
    MethodRow("elementwise.sub", "__sub__ (__isub__)", oracle="x - y", kinds=NUMBERS),
    # functions of a tensor
    *_rows("activation", "gelu celu(_) selu(_) hardshrink softshrink tanhshrink threshold(_) glu prelu"),
    *_rows("arithmetic", """
        div(_),divide(_) rdiv=__rtruediv__ rfloordiv=__rfloordiv__ rmod=__rmod__ rpow=__rpow__
    """),
    *_rows("casts", "view cast float double half bfloat16 type_as type"),
    *_rows("casts", "bitcast int long bool short char byte", differentiable=False),
    *_rows("convolutions", "conv2d conv_transpose2d max_pool2d avg_pool2d max_unpool2d"),
    *_rows("creation", """
        full_like zeros_like empty_like ones_like one_hot new_zeros new_ones new_empty new_full
        new_tensor new
    """, differentiable=False),
    *_rows("decompositions", """
        norm qr cholesky cholesky_solve cholesky_inverse svd pinverse matrix_power
    """),
    *_rows("elimination", "solve inverse det slogdet logdet"),
    *_rows("torch.factors", "matrix_exp lu lu_solve orgqr triangular_solve polygamma(_)"),
    *_rows("elementwise", """
        pos=positive,__pos__ where_of=where masked_fill(_) clip(_),clamp(_) lerp(_) rsub=__rsub__
    """),
    *_rows("elementwise", """
        lshift,bitwise_left_shift(_),__lshift__,(__ilshift__)
        rshift,bitwise_right_shift(_),__rshift__,(__irshift__) isclose allclose rlshift=__rlshift__
        rrshift=__rrshift__
    """, differentiable=False),
    *_rows("extremes", "max min amax amin aminmax"),
    *_rows("functions", """
        plus=add(_) minus=sub(_),subtract(_) fmod(_) logaddexp hypot(_) xlogy(_) addcmul(_) addcdiv(_)
        frac(_) deg2rad(_) rad2deg(_) sinc(_) nan_to_num(_) logit(_) heaviside(_) clamp_min(_)
        clamp_max(_) conj=to_dense,conj,conj_physical(_),resolve_conj,resolve_neg
    """),
    *_rows("functions", "logical_and(_) logical_or(_) logical_xor(_) signbit isreal", differentiable=False),
    *_rows("gather_scatter", """
        gather take index_select scatter(_) scatter_add(_) scatter_reduce(_) take_along_dim masked_select
    """),
    *_rows("gather_scatter", "nonzero argwhere nonzero_static", differentiable=False),
    *_rows("indexing", "getitem=__getitem__"),
    *_rows("linalg", """
        tril(_) triu(_) diag diagonal matmul,__matmul__,(__imatmul__) dot linear adjoint
        rmatmul=__rmatmul__ fill_diagonal=(fill_diagonal_)
    """),
    *_rows("losses", """
        cross_entropy sparse_categorical_crossentropy nll_loss binary_crossentropy,binary_cross_entropy
        binary_crossentropy_logits,binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss
        huber_loss kl_div
    """),
    *_rows("movement", """
        reshape,resize permute transpose,swapaxes,swapdims expand,broadcast_to flip shrink squeeze unsqueeze
        flatten unflatten repeat repeat_interleave windows unfold movedim,moveaxis narrow
        select t ravel view_as,reshape_as,resize_as expand_as fliplr flipud meshgrid
    """),
    *_rows("normalization", """
        softmax softmin log_softmax layernorm rmsnorm batchnorm dropout scaled_dot_product_attention
        sequential
    """),
    *_rows("products", """
        mm bmm mv vdot outer,ger inner tensordot addmm(_) addmv(_) addr(_) baddbmm(_) addbmm(_) kron
        cross trace dist cov corrcoef renorm(_)
    """),
    *_rows("properties", "contiguous"),
    *_rows("properties", """
        is_same_size is_signed is_complex is_conj is_neg is_nonzero is_inference is_pinned is_shared
        is_distributed dim_order pin_memory is_contiguous get_device cuda retain_grad ndimension
        storage_offset is_set_to
    """, differentiable=False),
    *_rows("random", """
        exponential=(exponential_) log_normal=(log_normal_) cauchy=(cauchy_) geometric=(geometric_)
        whole_numbers=(random_)
    """),
    *_rows("random", "rand_like randn_like multinomial bernoulli trials=(bernoulli_)", differentiable=False),
    *_rows("rearranging", """
        tile tensor_split hsplit vsplit dsplit rot90 diag_embed diagflat select_scatter diagonal_scatter
        slice_scatter narrow_copy diff sum_to_size broadcast_tensors fmax fmin
    """),
    *_rows("rearranging", "equal", differentiable=False),
    *_rows("reductions", "sum prod mean var std var_mean std_mean nansum nanmean logsumexp normalize"),
    *_rows("reductions", "any all argmax argmin count_nonzero", differentiable=False),
    *_rows("resizing", "pad,pad2d interpolate"),
    *_rows("scan", "cumsum(_) cumprod(_) cummax cummin logcumsumexp"),
    *_rows("sorting", "sort topk"),
    *_rows("sorting", "argsort", differentiable=False),
    *_rows("special", """
        erfc(_) erfinv(_) lgamma(_) digamma(_) mvlgamma(_) i0(_) frexp logaddexp2 ldexp(_)
        float_power(_) nextafter(_) angle
    """),
    *_rows("special", "gcd(_) lcm(_) isposinf isneginf", differentiable=False),
    *_rows("splitting", """
        split,split_with_sizes,unsafe_split,unsafe_split_with_sizes chunk,unsafe_chunk unbind
        cat,concat,concatenate stack roll
    """),
    *_rows("statistics", "kthvalue median nanmedian quantile nanquantile mode msort"),
    *_rows("statistics", """
        unique unique_consecutive bincount histc histogram searchsorted bucketize isin
    """, differentiable=False),
    *_rows("torch.strides", "as_strided as_strided_scatter"),
    *_rows("torch.strides", "stride new_empty_strided mapped=(apply_),(map_),(map2_)", differentiable=False),
    *_rows("torch.strides", "resized=(resize_),(resize_as_) as_strided=(as_strided_)", kind=RESHAPING),
    *_rows("movement", """
        squeeze=(squeeze_) unsqueeze=(unsqueeze_) t=(t_) transpose=(transpose_),(swapaxes_),(swapdims_)
    """, kind=RESHAPING),
    *_rows("writing", """
        index_add(_) index_copy(_) index_fill(_) index_reduce(_) index_put(_) put(_) masked_scatter(_)
        setitem=__setitem__ zero_ fill_ copy_ uniform_ normal_ detach_
    """),
    # makers
    *_rows("creation", "linspace eye", kind=MAKER),
    *_rows("files", "from_url", kind=MAKER),
    *_rows("random", """
        randint uniform normal scaled_uniform glorot_uniform,xavier_uniform kaiming_uniform
        kaiming_normal randperm
    """, kind=MAKER),
    # makers that take bound variables
    *_rows("creation", "full zeros ones empty arange", kind=SIZED_MAKER),
    *_rows("random", "rand randn", kind=SIZED_MAKER),
    # functions of neither a tensor nor the class
    *_rows("linalg", "einsum", kind=STATIC),
    *_rows("random", "manual_seed", kind=STATIC),
)  # fmt: skip
