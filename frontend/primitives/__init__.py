"""Operations of the frontend's own, which the compiler's primitives make up: each with its gradient."""
