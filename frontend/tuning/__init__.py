"""The search for the fastest plan of each kernel that `BEAM=n` asks for, measured on a device.

`space` has the choices of a kernel and the moves between them, `beam` walks along the moves. `trial` compiles
a kernel by a choice, launches it on random inputs, compares its results and times it, or has `count` count
its operations where the device is emulated. `process` starts another process in which `serving` does so: a
plan may end the process or never end. `tune` searches the kernels of a program. Nothing here is imported
while `BEAM` is 0.

Not here: the estimate that chooses without a search (`compiler.plan.proposers`), the store of winners, by
which the compiler plans (`compiler.winners`), the check of the results of all plans (`tests.fuzz.plans`).
Next: `space`; then `beam`, `tune`.
"""
