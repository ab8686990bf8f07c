"""Programs around the package: set-up, test drivers, the kernel compiler. Python's standard library only."""
