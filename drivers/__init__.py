"""Drivers: one folder a vendor, the same file names in each where the role is the same.

Not here: the interface (`hcq.driver`), the table of names (`hcq.registry`). Next: `drivers.cpu`, the driver
to read first; `drivers.kernel`, the only access to the operating system.
"""
