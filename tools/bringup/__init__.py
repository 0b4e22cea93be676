"""Bring a GPU up one rung at a time, and report the rung at which it stops: `python -m tools.bringup`.

Not here: what a rung of one vendor tests (`tools.bringup.nv`). Next: `command`, the command line; `ladder`,
the order; docs/nv.md.
"""
