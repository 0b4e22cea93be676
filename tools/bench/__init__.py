"""Benchmarks of queues and tensors: `python -m tools.bench submit replay signal copy --device cpu`.

A case is a function `(Bench) -> None` that calls `Bench.measure`; each measurement is a row with
median, quartiles, count, device and commit: a line of a table in a terminal, else of JSON. Figures of this
project are compared with a peer's only when both were taken in one run.

Not here: correctness, which tests prove. Next: `rows`, how a figure is taken; `queues`, the first cases.
"""
