"""Tests, and the programs that verify beside them: `python -m tests.NAME`.

`fuzz` (random programs), `oracles` (answers of PyTorch), `mutants` (planted faults), `guests` (kernels of
other compilers), `foreign` (drivers of others), `support` (what tests share). Commands: docs/verification.md.
"""
