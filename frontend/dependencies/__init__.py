"""What a function depends on besides its arguments, found before it runs and compared at later calls.

`code` reads the names out of bytecode, `found` resolves them to globals, closure cells, attributes and items,
`guards` compares what they hold now with what they held. The user is `frontend.jit`.
"""
