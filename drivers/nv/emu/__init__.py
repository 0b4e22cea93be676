"""Emulated NVIDIA GPUs: PTX on the SIMT engine, and the kernel driver's interface in front of it."""
