"""The SIMT engine that the emulated GPUs share: a warp is a vector of lanes, translated to host code.

A front end (PTX, AMDGPU machine code) turns a kernel into one host function that runs one warp; this
package gives it the vector code builder, the lane-mask scheduler, checked memory, atomics, barriers, the
dispatcher, tiers, the cache and the reports. It knows no packet, no ioctl and no vendor.
"""
