"""First-run mistakes and surprises, made by the emulated kernels: what the driver says of each.

`row` is one of them and how it is run, `nv` and `amd` are the tables, `__main__` the command. Next:
`emulator.shared.surprises`, the mechanism; docs/first-run.md, the tables as a page.
"""
