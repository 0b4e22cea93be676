"""The vendor-neutral model of a hardware command queue."""
