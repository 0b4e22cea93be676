"""Measure plans of a kernel on a device, for the search that `BEAM=n` asks for.

`trial` compiles a kernel by a choice, launches it on random inputs, compares its results and times it, or
has `count` count its operations where the device is emulated.
`process` starts another process in which `serving` does so: a plan may end the process or never end. `tune`
searches the kernels of a program. Nothing here is imported while `BEAM` is 0.

Not here: the choices and the search over them (`compiler.search`), which opens no device. Next: `tune`.
"""
