"""The recorder's forms of NVIDIA GPUs, as PTX, and their kernels.

Not here: recording and comparing (`tools.record.runner`, `tools.record.compare`). Next: `build`, the kernels;
`vendor`, the interface to the recorder; `manual` and the others, the forms.
"""
