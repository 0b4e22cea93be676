"""Golden streams of the NVIDIA driver, and an emulated kernel that records its calls.

Not here: the emulated GPU, which executes its submissions (`emulator.nv`). Next: `golden`, `recorded`.
"""
