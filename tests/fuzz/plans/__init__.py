"""Every plan of small kernels, run and compared with NumPy: `python -m tests.fuzz.plans`.

Not here: which plan is fastest (`BEAM`, `frontend.tuning`). Next: `small`, the kernels; `exhaustive`, the
plans; `frontend.tuning.trial`, which runs and compares them.
"""
