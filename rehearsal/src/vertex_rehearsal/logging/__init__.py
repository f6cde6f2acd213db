"""Cloud Logging: the entries of jobs, kept and queried.

Files, in the order of their imports:

- store.py: Log entries as Cloud Logging keeps them: written, listed by filter, and followed as they come.
- service.py: Cloud Logging: entries written, listed and followed.
"""
