"""Search on the device: kernels compiled by choices, launched on random inputs, compared and timed.

`trial` runs one kernel, `process` does so in another process with a time limit, `tune` is the search that
`BEAM=n` asks for. Nothing here is imported while `BEAM` is 0.

Not here: the choices and the search over them (`compiler.search`).
"""
