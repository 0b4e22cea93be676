"""Tensor methods by kind: functions whose first argument is the tensor; `Tensor` names them.

Not here: the list of names (`frontend.methods`), how a call becomes a lookup (`frontend.evaluation.trace`),
primitive operations (`compiler.ir.ops`). Next: docs/reference/tensor.md; to add one:
docs/how-to/add-an-elementwise-operation.md.
"""
