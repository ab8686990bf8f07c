"""Running cases on a device, in worker processes, in memory that reveals stray writes."""
