"""The search for plans, examined: small kernels of every class, of which every plan is run.

Not here: the space itself (`compiler.search.space`), the search of `BEAM` (`frontend.tuning`). Next: `small`.
"""
