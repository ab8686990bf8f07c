"""Running cases: on a device, in worker processes, in memory that shows what else was written."""
