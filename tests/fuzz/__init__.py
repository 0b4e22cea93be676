"""Fuzzers: they compare the results of random programs with an oracle.

    python -m tests.fuzz --cases 300 --first 0      random kernels, emulators against host code
    python -m tests.fuzz.tensors                    tensor programs against NumPy
    python -m tests.fuzz.queues                     queue programs against a sequential run
    python -m tests.fuzz.caches                     damaged caches
    python -m tests.fuzz.interrupts                 interrupts at every line
    python -m tests.fuzz.endurance                  memory and descriptors over time

Not here: gradients against PyTorch (`tests.oracles.gradients`), mutants of the driver (`tests.mutants`).
Results: docs/reliability.md.
"""
