"""The intermediate representation: nodes, index arithmetic, inference, verification.

Not here: what turns one graph into the other (`compiler.schedule`), loops and registers (`compiler.kernel`).
Next: `ops`, the operations; `uop`, the node; `graph` and `index`, its constructors.
"""
