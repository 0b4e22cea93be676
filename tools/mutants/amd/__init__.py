"""AMD's part of the mutants: the packets of its streams.

Not here: running and judging mutants (`tools.mutants`). Next: `packets`.
"""
