"""Golden streams of the NVIDIA driver, and a scripted kernel that plays its ioctls."""
