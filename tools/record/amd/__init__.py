"""The forms of AMD GPUs, as machine code of gfx942, gfx1100 and gfx1201. Next: `build`, their kernels."""
