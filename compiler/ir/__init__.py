"""The intermediate representation: nodes, index arithmetic, inference, verification.

Not here: the translation of tensor graphs to kernels (`compiler.schedule`), loops and registers
(`compiler.pipeline`). Next: `ops`, the operations; `uop`, the node; `graph` and `index`, its constructors.
"""
