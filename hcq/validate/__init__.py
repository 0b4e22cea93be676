"""The validation layer: what a submission may do wrong, found before it is sent."""
