"""Faults: which work is lost, how a device recovers, and the text of errors.

Not here: how hardware reports a fault, which is the driver's (`hcq.driver.DriverDevice.fault`). Next:
`recovery`, docs/errors.md.
"""
