"""What tests of several folders share.

`amd_golden`: golden texts of AMD instructions. `nv` and `amd`: scripted kernel drivers, which answer what a
driver asks and compute nothing (`scripted`: what both share). `host_time`: host time of the drivers on them.
"""
