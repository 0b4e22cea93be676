"""Scheduling: tensor graphs to kernel ASTs and the buffers they run on."""
