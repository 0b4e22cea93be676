"""Passes over the AST of one kernel that keep its results: merged ranges, moved masks, packed products.

Not here: fusion of operations into kernels (`compiler.schedule`), the loop nest of a kernel
(`compiler.plan`). Next: `range_merging`, the simplest pass; `compiler.pipeline`, the order of the passes.
"""
