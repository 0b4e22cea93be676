"""Tensor methods by family: functions whose first argument is the tensor; `Tensor` has them as methods.

Not here: the table of names (`frontend.methods`), how a call becomes a lookup (`frontend.evaluation.trace`),
primitive operations (`compiler.ir.ops`). Next: docs/reference/tensor.md; docs/how-to/add-a-tensor-method.md.
"""
