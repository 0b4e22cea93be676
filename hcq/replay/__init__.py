"""Replay: graphs that are encoded once; a submission writes changed values and the doorbell.

Not here: recording a graph (`hcq.graph`). Next: `executable`, the object for users; `slot`, one set of its
memory; `relocations`, the values that a replay writes.
"""
