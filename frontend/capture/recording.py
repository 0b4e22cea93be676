"""The recording of a captured call, and the captured form that is made from it.

Not here: what a capture guarantees (`jit`), containers of tensors (`frontend.containers`). Next: `captured`.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from frontend.capture.captured import Assembly, Captured
from frontend.device import Device, TensorDevice
from frontend.evaluation import gradient_state as grad_state
from frontend.evaluation.base import FamilyLink, TensorBase
from frontend.evaluation.launch import KernelLaunch
from frontend.evaluation.modes import Modes
from frontend.evaluation.plan import LARGE_BYTES, LaunchPlan
from frontend.evaluation.printing import described
from frontend.evaluation.storage import RESULT, Leaf
from frontend.evaluation.views import others
from hcq.errors import UsageError

if TYPE_CHECKING:
    import hcq
    from frontend.capture.guards import NameGuards
    from frontend.evaluation.expr import TensorExpr
    from frontend.evaluation.limits import Checks
    from frontend.tensor import Tensor

    Result: TypeAlias = tuple[TensorExpr, hcq.Buffer] | Tensor | int
    """A returned tensor: new memory with its expression, a captured tensor, or the index of an argument."""


@dataclass(slots=True)
class Capture:
    """The record of a captured call: launches, new memory, assignments and random draws."""

    steps: list[tuple[LaunchPlan | None, list[hcq.Buffer], list[hcq.Buffer]]] = field(default_factory=list)
    """(plan, input buffers, output buffers) of each launch; plan None: a copy."""
    leaves: dict[hcq.Buffer, weakref.ref[Leaf]] = field(default_factory=dict)
    """New memory -> its leaf."""
    states: dict[hcq.Buffer, Tensor] = field(default_factory=dict)
    """Memory from before the call that is assigned to -> the tensor that it belongs to."""
    draws: list[hcq.Buffer] = field(default_factory=list)
    """The memory of each random draw (key and counter of the generator, 16 bytes), in order."""
    snapshots: set[hcq.Buffer] = field(default_factory=set)
    """Copies of old contents, made by copy-on-write."""
    modes: Modes = field(default_factory=Modes)
    """The modes from outside that the function reads."""
    guards: NameGuards | None = None
    """The names that the function reads from outside; None: there are none."""
    relations: list[list[tuple[int, FamilyLink]]] = field(default_factory=list)
    """The returned tensors that share elements."""

    def record(self, plan: LaunchPlan, inputs: list[hcq.Buffer], outputs: list[hcq.Buffer]) -> None:
        """Record a launch."""
        self.steps.append((plan, inputs, outputs))

    def made(self, leaf: Leaf) -> None:
        """Record new memory."""
        self.leaves[leaf.buffer] = weakref.ref(leaf)

    def assigned(self, t: Tensor, leaf: Leaf) -> None:
        """Record that the memory of a tensor was written."""
        if leaf.buffer not in self.leaves:
            self.states[leaf.buffer] = t

    def copied(self, new: hcq.Buffer, old: hcq.Buffer) -> None:
        """Record a copy-on-write of the contents of `old` to `new`."""
        self.steps.append((None, [old], [new]))
        self.snapshots.add(new)

    def drew(self, buffer: hcq.Buffer) -> None:
        """Record the memory of a random draw."""
        self.draws.append(buffer)


def results_of(
    capture: Capture, stand_ins: list[Tensor], returned: list[Tensor], sizes: frozenset[int]
) -> list[Result]:
    """Classify each returned tensor as argument, captured tensor or new memory.

    `stand_ins` are the arguments of the recorded call. `sizes` are the indices in `returned` of the values of
    bound variables, which are never copied. Any other returned tensor has memory from outside, which the
    caller must not own: it is replaced, in `returned`, by a copy.
    """
    arguments = {t.leaves[0].buffer: i for i, t in enumerate(stand_ins)}
    found: list[Result] = []
    for i, t in enumerate(returned):
        buffer = t.leaves[0].buffer
        if any(t is s for s in stand_ins) or (i in sizes and buffer in arguments):
            found.append(arguments[buffer])
        elif buffer in capture.states and capture.states[buffer] is t:
            found.append(t)
        elif buffer in capture.leaves:
            found.append((t.expr, buffer))
        else:
            copy = t.clone().realize()
            returned[i] = copy
            found.append((copy.expr, copy.leaves[0].buffer))
    return found


def refuse_leftovers(
    capture: Capture,
    stand_ins: list[Tensor],
    returned: list[Tensor],
    before: dict[int, TensorBase | None],
    *,
    who: str,
) -> None:
    """Raise `UsageError` for tensors and gradients kept outside that a replay would not update.

    `before` are the gradients before the call, by the id of their tensors; `who` names the function.
    """
    for t in grad_state.wanting():
        grad = grad_state.grad_of(t)
        if grad is not None and grad is not before.get(id(t)):
            raise UsageError(
                f"{who} leaves a gradient in {described(t)}, which replays would not update\n"
                "hint: step the optimiser inside, or return the gradient and clear .grad"
            )
    lost = [*_renewed(stand_ins), *capture.leaves.values()]
    given = {id(t) for t in (*stand_ins, *returned)}
    if not _kept(capture, stand_ins, returned, lost):
        return
    gc.collect()  # leaves that only garbage refers to are not kept
    kept = _kept(capture, stand_ins, returned, lost)
    leaves = {leaf for x in kept for leaf in (x.leaves if isinstance(x, TensorBase) else (x,))}
    for t in gc.get_objects() if kept else ():
        if isinstance(t, TensorBase) and id(t) not in given and not leaves.isdisjoint(t.leaves):
            raise UsageError(
                f"{who} computes {described(t)}, which is kept outside, where replays would not update it\n"
                "hint: return it, or assign it to a tensor made before"
            )


def _kept(
    capture: Capture, stand_ins: list[Tensor], returned: list[Tensor], lost: list[weakref.ref[Leaf]]
) -> list[TensorBase | Leaf]:
    """Return views of arguments and results, and leaves of `lost`, that are alive but not returned."""
    given = [*stand_ins, *returned]
    new = {*capture.leaves, *[t.leaves[0].buffer for t in stand_ins]}
    views = [m for t in given for m in others(t) if all(m is not r for r in given)]
    known = {t.leaves[0] for t in returned}
    leaves = [leaf for leaf in [ref() for ref in lost] if leaf is not None and leaf not in known]
    return [m for m in views if any(leaf.buffer in new for leaf in m.leaves)] + [
        leaf for leaf in leaves if leaf.buffer not in capture.states
    ]


def _renewed(stand_ins: list[Tensor]) -> list[weakref.ref[Leaf]]:
    """Give arguments new leaves of the same memory; return the old ones, which only kept tensors hold now."""
    old = []
    for t in stand_ins:
        leaf = t.leaves[0]
        new = Leaf(leaf.buffer)
        new.known, new.origin, new.of, new.home = leaf.known, leaf.origin, leaf.of, leaf.home
        if new.home is not None and new.home.leaf() is leaf:
            new.home.current = weakref.ref(new)
        t.leaves = (new,)
        old.append(weakref.ref(leaf))
    return old


def captured_form(
    capture: Capture, stand_ins: list[Tensor], results: list[Result], nest: Any, *, who: str, label: str
) -> Captured:
    """Return the captured form of a recorded call, with one executable of all launches.

    `nest` is the returned container with places. `who` names the function in errors, `label` in traces.
    Raises `UsageError` for launches on several devices, and as `hcq.Graph.compile`.
    """
    kernels = kernels_of(capture)
    arguments = [t.leaves[0].buffer for t in stand_ins]
    written = {k.memory[i] for k in kernels for i in k.stores}
    device = _device(capture, stand_ins, who)
    touched = {b for k in kernels for b in k.memory}
    inputs = [i for i, b in enumerate(arguments) if b in touched]
    draws = [b in touched for b in capture.draws]
    outputs = list(dict.fromkeys([r[1] for r in results if isinstance(r, tuple)]))
    params = [(arguments[i], stand_ins[i].nbytes or 1) for i in inputs]
    params += [(b, 16) for b in capture.draws if b in touched]
    params += [(b, b.size) for b in outputs]
    inside = {*capture.leaves, *capture.snapshots}
    fixed = {b: cast("hcq.Buffer", b) for b in touched if not isinstance(b, tuple) and b not in inside}
    for b, _ in params:
        fixed.pop(b, None)
    work = Assembly.numbered(kernels, params, fixed, label)
    executable, count = work.executable(device) if kernels else None, len(kernels)
    if device.devices and kernels:  # assembled now, for the layouts of this call
        known = [*[arguments[i] for i in inputs], *[b for b in capture.draws if b in touched]]
        layouts = (*[cast("Any", b).layout for b in known], *[None for _ in outputs])
        count = cast("Any", executable).graph_for(layouts).kernels
    for b in outputs:
        b.label = RESULT + who
    return Captured(
        device=device,
        kernels=count,
        expect=[t.expr for t in stand_ins],
        inputs=inputs,
        draws=draws,
        sizes=[b.size for b in outputs],
        results=[(r[0], outputs.index(r[1])) if isinstance(r, tuple) else r for r in results],
        nest=nest,
        states=[(t, b) for b, t in capture.states.items() if b not in arguments],
        written=frozenset([b for b in capture.states if b not in arguments]),
        executable=executable,
        large=sum([size for _, size in params]) >= LARGE_BYTES,
        assigned=[i for i in inputs if arguments[i] in written],
        fixed=frozenset(fixed.values()),
        writes=bool(capture.states),
        checks=_checks(capture, arguments, set(fixed.values())),
        assembly=work if kernels else None,
        partial=any(kernel.partial for kernel in kernels),
        modes=capture.modes,
        guards=capture.guards,
        label=RESULT + who,
        relations=capture.relations,
    )


def _device(capture: Capture, stand_ins: list[Tensor], who: str) -> TensorDevice:
    devices = {plan.device.name for plan, _, _ in capture.steps if plan is not None} | {
        t.device for t in stand_ins
    }
    if len(devices) > 1:
        raise UsageError(
            f"{who} uses several devices ({', '.join(sorted(devices))}); capture one function for each"
        )
    return Device[devices.pop()] if devices else Device[Device.DEFAULT]


def _checks(
    capture: Capture, arguments: list[hcq.Buffer], fixed: set[hcq.Buffer]
) -> list[tuple[Checks, list[hcq.Buffer | int | None]]]:
    """Return `Captured.checks`: those that depend only on arguments and fixed memory not assigned to.

    Memory of the capture, which ran on copies of the arguments, is not kept.
    """
    found: list[tuple[Checks, list[hcq.Buffer | int | None]]] = []
    known: dict[hcq.Buffer, hcq.Buffer | int] = {b: b for b in fixed}
    known |= {b: i for i, b in enumerate(arguments)}
    known = {b: x for b, x in known.items() if b not in capture.states}
    for plan, inputs, _ in capture.steps:
        limits = None if plan is None else plan.limits
        part = None if limits is None else limits.over([i for i, b in enumerate(inputs) if b in known])
        if part is not None:
            found.append((part, [known.get(b) for b in inputs]))
    return found


def kernels_of(capture: Capture) -> list[KernelLaunch]:
    """Return the kernels of a capture, in order, without copies that no kernel reads.

    Keys of memory are buffers; the key of a temporary is (launch number, key in its plan).
    """
    kernels: list[KernelLaunch] = []
    for number, (plan, inputs, outputs) in enumerate(capture.steps):
        if plan is None:
            size = min(inputs[0].size, outputs[0].size)
            kernels.append(
                KernelLaunch(None, (1, 1, 1), (1, 1, 1), (outputs[0], inputs[0]), (size, size), (0,))
            )
            continue
        if plan.device.devices:
            kernels.append(cast("Any", plan).recorded(inputs, outputs))
            continue
        names: dict[Hashable, Hashable] = {("in", i): b for i, b in enumerate(inputs)}
        names |= {("out", n): b for (n, _), b in zip(plan.outputs, outputs, strict=True)}
        for kernel in plan.kernels:
            local = {key: (number, key) for key in kernel.memory if key not in names}
            kernels.append(kernel.renamed({**names, **local}))
    read = {key for k in kernels for i, key in enumerate(k.memory) if i not in k.stores}
    return [k for k in kernels if k.program is not None or k.memory[0] in read]
