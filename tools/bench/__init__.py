"""Queue-level microbenchmarks: `python -m tools.bench submit replay signal copy --device cpu`.

A case is a function `(Bench) -> None` that calls `Bench.measure`; each measurement is a row of JSON on
standard output with median, quartiles, count, device and commit. Figures of this project are compared with a
peer's only when both were taken in one run.
"""
