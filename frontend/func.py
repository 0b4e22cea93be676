"""Functions of functions, under the names of `torch.func`: derivatives, batches, modules as functions.

Arguments and results are tensors, or lists, tuples and dictionaries of them. A derivative may be taken of
another one. Results carry gradients if they depend on other tensors with requires_grad.

Not here: gradients of tensors (`frontend.autograd`), modules (`frontend.nn.module`).
"""

# ruff: noqa: FBT001, FBT002 - PyTorch's signatures

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from frontend.arguments.checks import axis_of
from frontend.arguments.conversion import flag, shown
from frontend.arguments.settings import choice
from frontend.autograd.gradients import grad as gradients
from frontend.evaluation.base import THREAD
from frontend.evaluation.gradient_state import decided, want
from frontend.evaluation.history import has_history
from frontend.evaluation.realize import realize_many
from frontend.evaluation.trace import make
from frontend.nn.state.models import every_tensor, owner_of
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from frontend.nn.module import Module


__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state",
    "vjp", "vmap",
]  # fmt: skip


def _mapped(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return a tree of containers with `fn` of each tensor, and of what the other trees have in its place."""
    if isinstance(tree, dict):
        return {k: _mapped(fn, v, *[o[k] for o in others]) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        found = [_mapped(fn, *each) for each in zip(tree, *others, strict=True)]
        return type(tree)(*found) if hasattr(tree, "_fields") else type(tree)(found)
    return fn(tree, *others)


def _tensors(tree: Any) -> list[Any]:
    """Return the tensors of a tree, in order."""
    found: list[Any] = []
    _mapped(lambda t: found.append(t) if isinstance(t, Tensor) else None, tree)
    return found


class _Inputs:
    """Arguments of which derivatives are taken, as tensors of their own inside a `with` block."""

    def __init__(self, what: str, trees: Sequence[Any]) -> None:
        self.trees = [_mapped(lambda t: self._own(what, t), tree) for tree in trees]
        self.leaves = _tensors(self.trees)

    @staticmethod
    def _own(what: str, value: Any) -> Tensor:
        if not isinstance(value, Tensor) or not value.dtype.is_float:
            raise UsageTypeError(f"{what}: wanted float tensors, or containers of them, saw {shown(value)}")
        return value.clone()

    def __enter__(self) -> Self:
        self._cut, THREAD.cut = THREAD.cut, False  # `no_grad` outside does not concern these derivatives
        realize_many([t for t in self.leaves if not has_history(t)])  # `has_history` looks at memory
        for t in self.leaves:
            t.requires_grad = True
        return self

    def __exit__(self, *_: object) -> None:
        THREAD.cut = self._cut
        for t in self.leaves:
            t.requires_grad = False

    def gradients(self, outputs: list[Any], seeds: list[Any] | None = None) -> Any:
        """Return the gradient of the sum of outputs for each argument, a list of trees."""
        found = gradients(outputs, self.leaves, seeds, create_graph=True, allow_unused=True)
        each = iter([t.zeros_like() if g is None else g for g, t in zip(found, self.leaves, strict=True)])
        return _mapped(lambda _: next(each), self.trees)


def _ended(tree: Any) -> Any:
    """Return a tree of results; those that depend on no tensor with requires_grad have no history.

    Inside `no_grad` none has one.
    """

    def ended(t: Any) -> Any:
        return t.detach() if isinstance(t, Tensor) and (THREAD.cut or not has_history(t)) else t

    return _mapped(ended, tree)


def _parts(what: str, found: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return the results of a function, of which derivatives are taken, and its other results.

    Raises `UsageTypeError` for no pair with `has_aux`, and for results that are no tensors or none at all.
    """
    if flag(has_aux, f"{what}, has_aux") and not (isinstance(found, tuple) and len(found) == 2):
        raise UsageTypeError(f"{what}, has_aux: wanted a pair as the function's result, saw {shown(found)}")
    outputs, aux = found if has_aux else (found, None)
    each: list[Any] = []
    _mapped(each.append, outputs)
    wrong = [t for t in each or [found] if not isinstance(t, Tensor)]
    if wrong:
        raise UsageTypeError(f"{what}: wanted a function whose results are tensors, saw {shown(wrong[0])}")
    return outputs, aux


def _same_structure(what: str, values: Any, like: Any) -> list[Any]:
    """Return the tensors of a tree. Raises `UsageError` unless it has the structure of another one."""

    def form(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {k: form(v) for k, v in tree.items()}
        return (type(tree), *map(form, tree)) if isinstance(tree, (list, tuple)) else isinstance(tree, Tensor)

    if form(values) != form(like):
        raise UsageError(f"{what}: wanted tensors in the structure of {shown(like)}, saw {shown(values)}")
    return _tensors(values)


def _picked(what: str, argnums: int | Sequence[int], args: Sequence[Any]) -> list[int]:
    """Return the places of arguments. Raises `UsageError` for a place that there is not."""
    every = [argnums] if isinstance(argnums, int) else list(argnums)
    wrong = [n for n in every if not -len(args) <= n < len(args)]
    if wrong or not every:
        raise UsageError(f"{what}, argnums: wanted places of {len(args)} arguments, saw {argnums}")
    return [n % len(args) for n in every]


def _with(args: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    found = dict(zip(places, values, strict=True))
    return [found.get(n, a) for n, a in enumerate(args)]


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function with the arguments of `func` that returns (gradients, value).

    The gradients have the structure of the arguments `argnums`. `func` returns a tensor of shape (); with
    `has_aux` a pair of it and other results, and the value is that pair. Raises `UsageError` for another
    shape, `UsageTypeError` for arguments that are no floats.
    """

    def call(*args: Any, **names: Any) -> tuple[Any, Any]:
        places = _picked("grad", argnums, args)
        with _Inputs("grad", [args[n] for n in places]) as inputs:
            found = func(*_with(args, places, inputs.trees), **names)
            value, _ = _parts("grad", found, has_aux)
            if not isinstance(value, Tensor) or value.shape != ():
                raise UsageError(f"grad: wanted a function whose result has the shape (), saw {shown(value)}")
            slopes = inputs.gradients([value])
        return _ended(slopes[0] if isinstance(argnums, int) else tuple(slopes)), _ended(found)

    return call


def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that returns the gradients of `func`, with `has_aux` also its other results.

    Else as `grad_and_value`.
    """
    both = grad_and_value(func, argnums, has_aux)

    def call(*args: Any, **names: Any) -> Any:
        slopes, value = both(*args, **names)
        return (slopes, value[1]) if has_aux else slopes

    return call


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return (results, function), with `has_aux` also other results, which `func` returns second.

    The function takes gradients of the results and returns a tuple of those of the primals.
    """
    with _Inputs("vjp", primals) as inputs:
        outputs, aux = _parts("vjp", func(*inputs.trees), has_aux)
    outs = [make(t, (t.expr, t.leaves)) for t in _tensors(outputs)]  # reading a result ends its history

    def back(*cotangents: Any) -> tuple[Any, ...]:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        return tuple(_ended(inputs.gradients(outs, _same_structure("vjp, cotangents", given, outputs))))

    return (_ended(outputs), back, _ended(aux)) if has_aux else (_ended(outputs), back)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, has_aux: bool = False) -> Any:
    """Return (results, their derivatives along the tangents), with `has_aux` also other results.

    Primals and tangents are tuples of equal structure. The derivative is the gradient of the gradient by its
    seed; `no_grad` in the function ends it, which PyTorch's forward mode does not look at. Raises
    `UsageTypeError` for primals that are no tuple of tensors, `UsageError` for other structures.
    """
    if not isinstance(primals, tuple) or not _tensors(primals):
        raise UsageTypeError(f"jvp, primals: wanted a tuple of tensors, saw {shown(primals)}")
    directions = _same_structure("jvp, tangents", tangents, primals)
    with _Inputs("jvp", primals) as inputs:
        outputs, aux = _parts("jvp", func(*inputs.trees), has_aux)
        outs = _tensors(outputs)
        seeds = [t.ones_like().realize() for t in outs]
        with _Inputs("jvp", [seeds]) as seeded:
            slopes = inputs.gradients(outs, seeded.leaves)
            pairs = zip(_tensors(slopes), directions, strict=True)
            total: Any = sum([(g * t).sum() for g, t in pairs])
            each = iter(seeded.gradients([total])[0])
            along = _mapped(lambda _: next(each), outputs)
    rest = (_ended(aux),) if has_aux else ()
    return (_ended(outputs), _ended(along), *rest)


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    chunk_size: int | None = None,  # noqa: ARG001 - PyTorch's signature
) -> Callable[..., Any]:
    """Return a function that returns the derivatives (*result, *argument) of each result by each argument.

    They have the structure of the results, and in each that of the arguments `argnums`. A derivative takes a
    gradient for each element of the results. `chunk_size` has no effect.
    """

    def call(*args: Any, **names: Any) -> Any:
        places = _picked("jacrev", argnums, args)
        with _Inputs("jacrev", [args[n] for n in places]) as inputs:
            outputs, aux = _parts("jacrev", func(*_with(args, places, inputs.trees), **names), has_aux)

            def rows(out: Any) -> Any:
                flat = out.reshape(-1)
                every = [inputs.gradients([flat[i]]) for i in range(out.numel())]
                if not every:
                    raise UsageError("jacrev: wanted results with elements, saw none")
                made = _mapped(lambda t, *more: Tensor.stack([t, *more]), *every)
                made = _mapped(lambda t: t.reshape(*out.shape, *t.shape[1:]), made)
                return made[0] if isinstance(argnums, int) else tuple(made)

            slopes = _mapped(rows, outputs)
        return (_ended(slopes), _ended(aux)) if has_aux else _ended(slopes)

    return call


jacfwd = jacrev
"""The same derivatives: here they are taken in reverse mode, too."""


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Return a function that returns the second derivatives of `func`: `jacrev` of `jacrev`."""
    return jacrev(jacrev(func, argnums), argnums)


def _axes(what: str, dims: Any, tree: Any) -> Any:
    """Return an axis or None for each tensor of a tree, in its structure; one for all may be given."""
    if dims is None or isinstance(dims, int):
        return _mapped(lambda _: dims, tree)
    if isinstance(tree, (list, tuple)) and isinstance(dims, (list, tuple)) and len(dims) == len(tree):
        return type(tree)([_axes(what, d, t) for d, t in zip(dims, tree, strict=True)])
    if isinstance(tree, dict) and isinstance(dims, dict) and dims.keys() == tree.keys():
        return {k: _axes(what, dims[k], t) for k, t in tree.items()}
    raise UsageError(f"vmap, {what}: wanted an axis or None, or as many as there are tensors, saw {dims!r}")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "different",
    *,
    chunk_size: int | None = None,  # noqa: ARG001 - PyTorch's signature
) -> Callable[..., Any]:
    """Return a function that applies `func` to each element along an axis of its arguments.

    `in_dims` are the axes, None for an argument that all elements share; `out_dims` those of the results. The
    function is called once for each element, and the kernels of all calls are launched together: for large
    batches write the function for a batch. `chunk_size` has no effect. Each call draws its own random
    numbers.

    Raises `UsageError` for axes that do not fit, different lengths, no axis at all, and for the `randomness`
    "same".
    """
    choice("vmap, randomness", randomness, ("different", "error"))

    def call(*args: Any, **names: Any) -> Any:
        given = list(args)
        if isinstance(in_dims, (list, tuple)) and len(in_dims) != len(given):
            raise UsageError(f"vmap, in_dims: wanted {len(given)}, one for each argument, saw {in_dims}")
        each = list(in_dims) if isinstance(in_dims, (list, tuple)) else [in_dims] * len(given)
        dims = _axes("in_dims", each, given)
        sizes: set[int] = set()

        def sized(t: Any, d: int | None) -> None:
            if d is not None:
                if not isinstance(t, Tensor):
                    raise UsageTypeError(f"vmap: wanted a tensor where in_dims is {d}, saw {shown(t)}")
                sizes.add(t.shape[axis_of(d, t.shape, "vmap, in_dims")])

        _mapped(sized, given, dims)
        if len(sizes) != 1 or not min(sizes):
            raise UsageError(f"vmap: wanted equal lengths of at least 1 along in_dims, saw {sorted(sizes)}")
        results = []
        for i in range(sizes.pop()):
            part = _mapped(lambda t, d, i=i: t if d is None else t.select(d, i), given, dims)
            results.append(func(*part, **names))
        outs = _axes("out_dims", out_dims, results[0])
        return _mapped(
            lambda d, first, *more: first if d is None else Tensor.stack([first, *more], d), outs, *results
        )

    return call


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parameters and the buffers of equal modules by name, each stacked along a new first axis.

    The parameters are new leaves with requires_grad. Raises `UsageError` for no modules or other names.
    """
    if not models or any(m.state_dict().keys() != models[0].state_dict().keys() for m in models):
        raise UsageError(f"stack_module_state: wanted modules of one structure, saw {len(models)}")
    every = [dict(m.named_parameters()) for m in models], [dict(m.named_buffers()) for m in models]
    parameters, buffers = (
        {name: Tensor.stack([one[name] for one in named]).detach() for name in named[0]} for named in every
    )
    for t in parameters.values():
        t.requires_grad = True
    return parameters, buffers


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Return `module(*args, **kwargs)` with other tensors in place of its parameters and buffers.

    The tensors are given by the names of `named_parameters` and `named_buffers`, in one mapping or several;
    the module is unchanged afterwards. `args` is a tuple, or one argument. With `tie_weights` a tensor takes
    the place of one under all its names that are not given. A tensor is a parameter only if its requires_grad
    was set. Not thread-safe: the module has the tensors during the call. Raises `UsageError` for a name that
    the module lacks, and with `strict` for one that is not given.
    """
    given = parameter_and_buffer_dicts
    every = [given] if isinstance(given, Mapping) else given
    if not isinstance(every, (list, tuple)) or not all(isinstance(one, Mapping) for one in every):
        raise UsageTypeError(f"functional_call: wanted tensors by name, saw {shown(given)}")
    values = {name: tensor for one in every for name, tensor in one.items()}
    named = every_tensor(module)
    if strict and (lacking := named.keys() - values.keys()):
        raise UsageError(f"functional_call: wanted all tensors, {', '.join(sorted(lacking))} not given")
    if tie_weights:
        by_tensor = {id(named[name]): tensor for name, tensor in values.items() if name in named}
        values = {n: by_tensor[id(t)] for n, t in named.items() if id(t) in by_tensor} | values
    want([t for t in values.values() if isinstance(t, Tensor) and decided(t) is None], wanted=False)
    owners = [(*owner_of(module, name), tensor) for name, tensor in values.items()]
    before = [owner[key] for owner, key, _ in owners]
    try:
        for owner, key, tensor in owners:
            owner[key] = tensor
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        for (owner, key, _), tensor in zip(owners, before, strict=True):
            owner[key] = tensor
