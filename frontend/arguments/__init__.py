"""The arguments of calls: their names, their classes and what they must be."""
