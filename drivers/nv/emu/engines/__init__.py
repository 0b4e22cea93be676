"""The emulated engines: channels, push buffers, compute, copy, semaphores."""
