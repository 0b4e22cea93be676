"""From the AST of a kernel and its loop nest to a linear list of operations, one register a line.

Not here: the nest (`compiler.nest`), text for LLVM (`compiler.text`). Next: `linear`, the list; `linearize`,
which writes it; `isel`, the lines of an operation; `transcendental`, the table of decomposed functions.
"""
