"""Golden streams of the NVIDIA driver, and a scripted kernel that replies to its ioctls.

Not here: the emulated GPU, which executes its submissions (`emulator.nv`). Next: `golden`, `scripted`.
"""
