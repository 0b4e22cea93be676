"""AMDGPU machine code: decoder, semantics on the SIMT engine, static verifiers.

Not here: running it (`emulator.simt`). Next: `decode`, `translate`; `meanings`, how an operation is
defined.
"""
