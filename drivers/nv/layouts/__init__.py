"""Layouts of the NVIDIA driver: every structure, method, class and descriptor, declared once, with its source."""
