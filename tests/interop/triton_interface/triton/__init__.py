"""The part of Triton's interface for back-ends that the plug-in uses, for tests where Triton is absent."""

from triton import runtime, testing

__all__ = ["runtime", "testing"]
