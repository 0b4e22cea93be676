"""AMDGPU machine code: decoder, semantics on the SIMT engine, static verifiers."""
