"""Search for the fastest plan of a kernel: the choices that it has, the search, and the store of winners.

A search needs times, but the compiler opens no device: `beam.search` takes a function that measures a plan.
`frontend.tuning` has that function, because it opens devices. `compile` plans by a stored winner.

Not here: the estimate that chooses without a search (`compiler.plan.proposers`), compiling and timing on a
device (`frontend.tuning`), the comparison of the estimate with all plans (`tools.search`). Next: `space`, the
choices; then `beam`, the search.
"""
