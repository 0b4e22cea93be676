"""Parts of a hardware run (`tools.hardware_run`): stages and what a box is."""
