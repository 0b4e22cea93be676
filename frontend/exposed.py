"""The memory of a tensor for work outside the frontend, such as kernels of other compilers.

Such work may write the memory, so taking it counts as an assignment: tensors that were built from the old
value keep that value, and tensors that share elements with the tensor change with it (`frontend.assignment`).

Not here: memory for other array libraries (`frontend.dlpack`). Next: `interop.tensors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frontend.assignment import write_rest
from frontend.device import LOCK, Device
from frontend.evaluation.base import EPOCH, Rebound, TensorBase
from frontend.evaluation.plan import refuse
from frontend.evaluation.realize import check_concrete, realize_many
from frontend.evaluation.storage import Leaf, home_of, preserve
from frontend.evaluation.trace import become
from frontend.evaluation.views import owns, rederive_views

if TYPE_CHECKING:
    import hcq


def memory_of(t: TensorBase) -> hcq.Buffer:
    """Return the memory of a tensor, which the caller's next submission may read and write.

    The elements lie densely in C order from the start of the buffer. A pending tensor is computed first. A
    view and a tensor that borrows memory get memory of their own. The tensor owns the buffer. The caller
    submits to the first compute queue of the tensor's device, before any other use of the tensor. Raises
    `UsageError` inside a captured or traced function, which would not repeat the submission, and as
    `Tensor.realize`.
    """
    with LOCK:
        refuse(
            "the memory of a tensor was taken inside a captured function, whose replays would not repeat "
            "what happens to it\nhint: do it outside"
        )
        check_concrete(t)
        realize_many((t,))
        device = Device[t.expr.device]
        if not owns(t):
            become(t, t.expr.leaf, (Leaf(device.copied(t.leaves[0].buffer)),))
        home = home_of(t.leaves[0])
        before = home.current
        leaf = home.advance()
        become(t, t.expr.leaf, (leaf,))
        t.recipe = Rebound(None)
        rederive_views(t)
        preserve(before, device)
        if t.used:
            EPOCH[0] += 1
            t.epoch = EPOCH[0]
        write_rest(t, {id(t)})
        return leaf.buffer
