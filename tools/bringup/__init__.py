"""Bring a GPU up one rung at a time, and say exactly where it stops: `python -m tools.bringup`."""
