"""Golden streams of the NVIDIA driver, and a scripted kernel that answers its ioctls.

Not here: the emulated GPU, which executes what it receives (`drivers.nv.emu`). Next: `golden`, `scripted`.
"""
