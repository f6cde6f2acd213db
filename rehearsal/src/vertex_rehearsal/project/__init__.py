"""The emulated project: who may do what, quotas, regions, and faults that were asked for."""
