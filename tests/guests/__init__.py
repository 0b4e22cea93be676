"""Kernels of Triton and CUDA C++, run on this stack: sources, cases with expected results, compiled data.

`tests.guests.cases` has each kernel's inputs and what NumPy expects; `tests.guests.tutorials` runs the
kernels of Triton's tutorials through the plug-in and times them.

Not here: the plug-in (`interop.triton_backend`). Next: docs/other-kernels.md.
"""
