"""First-run mistakes and surprises, injected by the emulated kernels, and the driver's message for each.

`row` has the class of a case and runs it; `nv` and `amd` are the tables, `__main__` is the command.

Not here: how an emulated kernel deviates (`emulator.shared.surprises`). Next: `row`; docs/first-run.md, the
tables as a page.
"""
