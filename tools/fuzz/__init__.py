"""Random kernels on which emulator and host code must agree: `python -m tools.fuzz --cases 300 --first 0`."""
