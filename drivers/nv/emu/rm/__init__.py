"""The emulated kernel driver: resource manager and UVM, as seen through ioctl and mmap."""
