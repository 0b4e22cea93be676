"""Replay: graphs encoded once, whose submissions patch what changed and write the doorbell.

Not here: recording a graph (`hcq.graph`). Next: `executable`, the user's object; `slot`, one set of its
memory; `relocations`, what a replay writes.
"""
