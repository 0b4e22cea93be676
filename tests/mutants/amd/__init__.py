"""AMD's part of the mutants: the packets of its streams, the structures of its ioctls.

Not here: running and judging mutants (`tests.mutants`). Next: `packets`, `structures`.
"""
