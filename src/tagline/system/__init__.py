"""The process and the machine it runs on: signals, child processes, optional packages."""
