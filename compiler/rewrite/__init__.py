"""Passes over the AST of one kernel that keep its results: merged ranges, moved masks, packed products.

Not here: what shares a kernel (`compiler.schedule`), the loop nest of a kernel (`compiler.plan`). Next:
`range_merging`, the simplest one; `compiler.pipeline`, their order.
"""
