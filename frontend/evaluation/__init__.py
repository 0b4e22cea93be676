"""Lazy evaluation: expressions over realized leaves, how calls build them, and how they are computed.

The modules: the state of a tensor (`base`), its expression (`expr`), the lookup of a repeated call (`trace`),
shared elements (`views`), memory (`storage`), and the steps to a launch (`realize`, `plan`, `launch`). They
import nothing of `frontend.ops`.

Not here: devices (`frontend.device`), functions of tensors (`frontend.ops`). Next: `base`, `expr`.
"""
