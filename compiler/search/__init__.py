"""Search for the fastest plan of a kernel: the choices that it has, the search, and the store of winners.

The compiler opens no device, so `beam.search` takes a function that measures a plan; `frontend.tuning`, which
opens devices, has it. `compiler.compile` plans by a stored winner.

Not here: the estimate that chooses without a search (`compiler.plan.proposers`), compiling and timing on a
device (`frontend.tuning`), the comparison of the estimate with all plans (`tools.search`). Next: `space`, the
choices; then `beam`, the search.
"""
