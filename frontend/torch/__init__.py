"""PyTorch's modules that nothing else of the frontend needs; each loads when it is first used.

They have PyTorch's names elsewhere: `frontend.linalg`, `frontend.distributions`, `frontend.optim.swa_utils`,
`frontend.nn.utils.parametrize`.
"""
