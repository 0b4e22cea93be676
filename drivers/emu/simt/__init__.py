"""The SIMT engine: a warp is a vector of lanes, translated to host code."""
