"""Layouts of the NVIDIA driver: each structure, method, class and descriptor once, with its source."""
