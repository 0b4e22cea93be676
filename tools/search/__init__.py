"""The search for plans, examined: `python -m tools.search choose` and `python -m tools.search check`.

`choose` compares the plan of the cost model with the best of an exhaustive search, over many shapes. `check`
runs every plan of small kernels and compares the results.

Not here: the space itself (`compiler.search.space`), the search of `BEAM` (`frontend.tuning`).
"""
