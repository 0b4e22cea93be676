"""One kernel: its loop nest, and its operations as a linear list."""
