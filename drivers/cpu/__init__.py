"""The `cpu` device: a hardware queue device whose hardware is this machine's cores."""
