"""Faults: which work is lost, how a device recovers, and the text of errors."""
