"""Cloud Logging: the entries of jobs, kept and queried.

Files, in the order of their imports:

- store.py: Storage of log entries: written, listed by filter, and followed as they arrive.
- service.py: Cloud Logging's API: writes, lists and tails log entries.
"""
