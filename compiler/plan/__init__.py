"""Planners: from the AST of one kernel and a target to its loop nest, and what a nest is estimated to cost.

Not here: the nest (`compiler.nest`), its operations (`compiler.emit`), the search (`frontend.tuning`).
Next: `tiling`, the planner of most kernels; `cost`, its estimate; `compiler.pipeline`, which planner is asked
when.
"""
