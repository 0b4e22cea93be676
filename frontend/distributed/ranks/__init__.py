"""Training by several processes, one a rank, over MPI: the names of `torch.distributed`.

Not here: several devices of one process (`frontend.distributed`). Next: `processes`, then `collectives`.
"""
