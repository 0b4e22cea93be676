"""`autograd.grad`: gradients of outputs with respect to inputs, without `.grad`.

Not here: `.grad` of leaves (`Tensor.backward`). Next: `engine`, which computes gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from frontend.arguments.checks import tensor
from frontend.arguments.conversion import flag
from frontend.autograd.engine import between_hooks, gradients_or_none
from frontend.evaluation.constants import stopped
from frontend.evaluation.gradient_state import group, hooked
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


def grad(  # noqa: PLR0917 - PyTorch's signature
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,  # noqa: FBT001 - PyTorch's signature
    create_graph: bool = False,  # noqa: FBT001, FBT002 - as above
    only_inputs: bool = True,  # noqa: FBT001, FBT002 - as above; without effect, as in PyTorch
    allow_unused: bool | None = None,  # noqa: FBT001 - as above
    is_grads_batched: bool = False,  # noqa: FBT001, FBT002 - as above
    materialize_grads: bool = False,  # noqa: FBT001, FBT002 - as above
) -> tuple[Any, ...]:
    """Return the gradient of the sum of outputs with respect to each input, a tuple in their order.

    Outputs are floats of shape (), or of any shape with `grad_outputs`, the gradient of each output. Results
    are lazy, and can be differentiated again with `create_graph`; without it no gradient flows through them.
    `retain_graph` has no effect. For an input that no output depends on the gradient is None with
    `allow_unused`, zeros with `materialize_grads`. With `is_grads_batched` the first axis of `grad_outputs`
    counts gradients, and that of the results is the same.

    Hooks of inputs change their gradients, and hooks of tensors on the way are called.

    Raises `UsageError` for such an input without `allow_unused`, for another number of `grad_outputs`, and as
    `Tensor.gradient`; `UsageTypeError` for inputs that are no tensors, and for flags that are no bools.
    """
    flag(create_graph, "grad, create_graph")
    flag(only_inputs, "grad, only_inputs")
    if retain_graph is not None:
        flag(retain_graph, "grad, retain_graph")
    outs, targets = _listed(outputs), _listed(inputs)
    seeds = [None] * len(outs) if grad_outputs is None else _listed(grad_outputs)
    if len(seeds) != len(outs):
        raise UsageError(f"grad: wanted {len(outs)} tensors as grad_outputs, saw {len(seeds)}")
    for t in targets:
        tensor(t, "grad, inputs", outs[0])
    if flag(is_grads_batched, "grad, is_grads_batched") and grad_outputs is not None:
        rest = (retain_graph, create_graph, only_inputs, allow_unused, False, materialize_grads)
        for seed in seeds:
            tensor(outs[0] if seed is None else seed, "grad, grad_outputs", outs[0])
        count = min([len(s) for s in seeds if s is not None], default=0)
        each = [[None if s is None else s[i] for s in seeds] for i in range(count)]
        columns = [list(c) for c in zip(*[grad(outs, targets, row, *rest) for row in each], strict=True)]
        return tuple([None if column[0] is None else type(column[0]).stack(column) for column in columns])
    every = [*targets, *between_hooks(targets)]
    summed: list[Tensor | None] = [None] * len(every)
    for out, seed in zip(outs, seeds, strict=True):
        for i, g in enumerate(gradients_or_none(out, every, seed)):
            if g is not None:
                before = summed[i]
                summed[i] = g if before is None else before + g
    summed = [g if g is None else hooked(t, g) for t, g in zip(every, summed, strict=True)]
    found = summed[: len(targets)]
    if flag(materialize_grads, "grad, materialize_grads"):
        found = [t.zeros_like() if g is None else g for t, g in zip(targets, found, strict=True)]
    missing = [i for i, g in enumerate(found) if g is None]
    if missing and not allow_unused:
        raise UsageError(
            f"grad: no output depends on input {missing[0]}\nhint: allow_unused=True gives None for it"
        )
    found = found if create_graph else [g if g is None else stopped(g) for g in found]
    group(found)
    return tuple(found)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not hasattr(value, "expr") else [value]


def gradcheck(  # noqa: PLR0917 - PyTorch's signature
    func: Any,
    inputs: Any,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,  # noqa: FBT001, FBT002 - PyTorch's signature
) -> bool:
    """Compare the gradients of a function with central differences of step `eps`; return whether they agree.

    Inputs with requires_grad are float64; each output's sum is differentiated. With `raise_exception` a
    disagreement raises `UsageError`, which names the input.
    """
    given = _listed(inputs)
    checked = [i for i, t in enumerate(given) if getattr(t, "requires_grad", False)]
    outs = [out.sum() for out in _listed(func(*given))]
    found = grad(outs, [given[i] for i in checked], allow_unused=True)
    for i, slope in zip(checked, found, strict=True):
        want = _differences(func, given, i, eps)
        g = want * 0 if slope is None else slope
        if not g.allclose(want, rtol, atol):
            if raise_exception:
                raise UsageError(
                    f"gradcheck: input {i} has the gradient {g.tolist()}, differences {want.tolist()}"
                )
            return False
    return True


def gradgradcheck(  # noqa: PLR0917 - as above
    func: Any,
    inputs: Any,
    grad_outputs: Any = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,  # noqa: FBT001, FBT002 - as above
) -> bool:
    """Compare the gradients of a function's gradients with central differences; see `gradcheck`.

    `grad_outputs`: the gradient of each output; None: different numbers.
    """
    given = _listed(inputs)
    checked = [i for i, t in enumerate(given) if getattr(t, "requires_grad", False)]

    def gradients(*args: Any) -> list[Any]:
        own = [a if i not in checked or a.requires_grad else a.requires_grad_() for i, a in enumerate(args)]
        outs = _listed(func(*own))
        seeds = None if grad_outputs is None else _listed(grad_outputs)
        seeds = seeds or [out.ones_like().cumsum(0) if out.ndim else out.ones_like() for out in outs]
        found = grad(outs, [own[i] for i in checked], seeds, create_graph=True, allow_unused=True)
        return [g for g in found if g is not None]

    return gradcheck(gradients, inputs, eps, atol, rtol, raise_exception)


def _differences(func: Any, given: list[Any], i: int, eps: float) -> Any:
    """Return central differences of the sum of all outputs with respect to each element of an input."""
    t = given[i].detach()
    flat, slopes = t.reshape(-1), []
    for k in range(flat.shape[0]):
        step = flat * 0
        step[k] = eps
        sums = []
        for sign in (1, -1):
            moved = [*given[:i], (flat + step * sign).reshape(t.shape), *given[i + 1 :]]
            sums.append(sum(float(out.sum().item()) for out in _listed(func(*moved))))
        slopes.append((sums[0] - sums[1]) / (2 * eps))
    return type(t)(slopes, dtype=t.dtype).reshape(t.shape)
