"""The recorder's forms of NVIDIA GPUs, as PTX, and their kernels.

Next: `build`, kernels of forms; `vendor`, what the recorder asks for; `integers` and the others, the forms.
"""
