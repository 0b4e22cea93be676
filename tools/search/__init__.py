"""Two checks of the plans of kernels: `python -m tools.search choose` and `python -m tools.search check`.

`choose` compares the time of the estimated plan with that of the best plan of an exhaustive search, for many
shapes. `check` runs every plan of small kernels and compares the results. Both use `frontend.tuning.trial`.

Not here: the choices that a search of `BEAM` tries (`frontend.tuning.space`), its measurements
(`frontend.tuning`). Next: `exhaustive`, the choices; `choose`, `check`.
"""
