"""The validation layer: checks of every submission before it is sent.

Not here: checks that every call makes, with validation or without (`hcq.commandbuffer`, `hcq.queue`). Next:
`validator`, the entry; `hazards`, `waits` and `guards`, its parts.
"""
