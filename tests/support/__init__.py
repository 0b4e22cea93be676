"""What tests of several folders share.

`hooked`: emulated kernels that fail a call or change a reply. `amd_golden`: golden texts of AMD instructions.
`nv`: a scripted kernel driver of NVIDIA. `host_time`: host time of the drivers.
"""
