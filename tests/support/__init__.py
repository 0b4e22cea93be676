"""What tests of several folders share.

`hooked`: emulated kernels that fail a call or change a reply.
`surprises`: first-run mistakes, and what drivers must say. `kernel_corpus`: kernels of a run of tests.
`nv`: an emulated kernel of NVIDIA that records its calls. `host_time`: host time of the drivers.
"""
