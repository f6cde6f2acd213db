"""Process and machine: signals, child processes, optional packages.

Files, in the order of their imports:

- signals.py: Graceful shutdown of a training: SIGTERM and Ctrl-C.
- processes.py: Child processes that end with their parent, and identifying a process by pid and start time.
- extras.py: Optional packages: which extra of Tagline brings each of them, and the error if one is not installed.
- lazy_names.py: Public names of a package, each imported on first use.
"""
