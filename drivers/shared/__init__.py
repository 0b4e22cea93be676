"""What the drivers of all vendors do in the same way; a vendor's facts are arguments.

Not here: the vendors' drivers, the operating system (`drivers.kernel`). Next: `uploader`.
"""
