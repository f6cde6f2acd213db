"""The process and the machine it runs on: signals, child processes, optional packages.

Files, in the order of their imports:

- signals.py: Being told to stop while something is learned.
- processes.py: Processes that must not outlive the one that started them, and how one is known again.
- extras.py: Optional packages: which extra of Tagline brings each of them, and what to say where one is not
  installed.
- lazy_names.py: Public names of a package, each imported when it is first used.
"""
