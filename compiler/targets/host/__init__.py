"""Host targets: x86-64 and aarch64, with the vectors of the machine.

Next: `target`, the levels and the dialect.
"""
