"""Fuzzers: they compare the results of random programs with an oracle.

    python -m tools.fuzz --cases 300 --first 0      random kernels, emulator against host code
    python -m tools.fuzz.tensors                    tensor programs against NumPy
    python -m tools.fuzz.queues                     queue programs against a sequential run
    python -m tools.fuzz.caches                     damaged caches
    python -m tools.fuzz.interrupts                 interrupts at every line
    python -m tools.fuzz.endurance                  memory and descriptors over time

Not here: gradients against PyTorch (`tools.gradients`), mutants of the driver (`tools.mutants`). Results:
docs/reliability.md.
"""
