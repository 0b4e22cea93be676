"""Replay: graphs encoded once, whose submissions patch what changed and ring the doorbell."""
