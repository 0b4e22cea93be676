"""Search for the fastest plan of a kernel: the choices that it has, the search, and the store of winners.

Not here: the estimate that chooses without a search (`compiler.plan.cost`), compiling and timing in
processes (`frontend.tuning`). Next: `space`, then `beam`.
"""
