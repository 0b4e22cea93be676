"""The bring-up ladder: test a GPU one step at a time and report the first failure; `hcq bringup`.

Not here: what a rung of one vendor tests (`tools.bringup.nv`, `tools.bringup.amd`). Next: `command`, the
command line; `ladder`, the order of rungs; `vendor`, the interface of a vendor; docs/nv.md, docs/amd.md.
"""
