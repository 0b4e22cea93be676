"""Drivers: one folder for each vendor, with the same file names for the same roles.

Not here: the interface (`hcq.driver`), the table of names (`hcq.registry`). Next: `drivers.cpu`, the driver
to read first; `drivers.kernel`, the only access to the operating system.
"""
