"""PTX for the emulated GPU: text to statements, statements to functions of the SIMT engine.

Not here: running the function (`emulator.simt`), finding the PTX of an image
(`emulator.nv.engines.images`). Next: `module`, the interface; `syntax`, `flat`, `blocks`, `translate`, the
steps in order; `core`, how an instruction is defined. docs/reference/ptx.md lists what is supported.
"""
