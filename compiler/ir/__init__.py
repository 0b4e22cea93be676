"""The intermediate representation: nodes, index arithmetic, inference, verification."""
