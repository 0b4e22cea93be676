"""Drivers: one folder a vendor, the same file names in each where the role is the same."""
