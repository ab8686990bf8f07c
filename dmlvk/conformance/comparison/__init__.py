"""Comparisons of results: of several devices with each other, and of a device with itself before an update."""
