"""Benchmarks of queues and tensors: `hcq bench submit replay signal copy --device cpu`.

A case is a function `(Bench) -> None` that adds rows. Each row is a measurement with median, quartiles,
number of samples, device and commit: a line of a table in a terminal, a line of JSON elsewhere. Figures of
this project are compared with those of another only if both were measured in one run.

Not here: correctness (`tests`). Next: `rows`, how a figure is measured; `queues`, the first cases.
"""
