"""Gradients: reverse mode, from graph to graph."""
