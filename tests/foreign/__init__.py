"""tinygrad's NVIDIA and AMD drivers on the emulated GPUs.

Two drivers of one interface that were written by different people judge the emulated GPU between them: what
only one of them needs is a doubt about the other. Not here: this project's own drivers on the emulated GPUs
(tests/conformance). Next: `__main__`, the command; docs/how-to/test-your-driver.md.
"""
