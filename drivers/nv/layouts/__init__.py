"""Layouts of the NVIDIA driver: each structure, method, class and descriptor once, with its source.

Not here: any behaviour (`drivers.nv`, `emulator.nv`). Next: `gpfifo` and `compute`, the words of a launch;
`python -m tools.reference --pages FOLDER`, all layouts as tables.
"""
