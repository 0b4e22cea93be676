"""Scripted kernels: replies of kernel drivers from a script, for tests, golden files and dry runs.

A scripted kernel checks each call, replies from a script, and computes nothing. Here is the part that belongs
to no vendor.

Not here: the ioctls of a vendor (`nv.scripted`, `amd.scripted`), and emulated GPUs, which run
kernels (`emulator.nv`, `emulator.amd`). Next: `host`.
"""
