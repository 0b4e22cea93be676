"""Bring a GPU up one rung at a time, and report the rung at which it stops: `python -m tools.bringup`.

Not here: what a rung of one vendor tests (`tools.bringup.nv`, `tools.bringup.amd`). Next: `command`, the
command line; `ladder`, the order; `vendor`, what a vendor tells them; docs/nv.md, docs/amd.md.
"""
