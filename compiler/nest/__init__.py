"""The loop nest of a kernel as data, and what is known of a kernel before and after it has one.

Not here: the choice of a nest (`compiler.plan`), the operations that it leads to (`compiler.emit`). Next:
`loop_nest`, the data; `kernel_shape`, what planners read; `nest_check`, the checks.
"""
