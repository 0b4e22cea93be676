"""Lazy evaluation: expressions over realized leaves, how calls build them, and how they are computed.

A tensor's state (`base`), its expression (`expr`), the lookup of a known call (`trace`), shared elements
(`views`), memory (`storage`), and the way to a launch (`realize`, `plan`, `launch`). It imports no
function of `frontend.ops`.

Not here: devices (`frontend.device`), functions of tensors (`frontend.ops`).
"""
