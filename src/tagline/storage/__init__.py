"""Storage at local paths and gs:// addresses: atomic writes, copies, hashes, inputs and models of JSON files.

Files, in the order of their imports:

- atomic.py: Atomic writes, locks, replacement and removal of local files and directories.
- hashing.py: SHA-256 of files, and a combined one of many files.
- addresses.py: Local paths and gs:// addresses: cached downloads, uploads, copies and removal.
- inputs.py: Input files: globs, decompression, spooling of standard input and pipes, and detection of changes.
- file_models.py: FileModel: the base of models of JSON files, frozen, which keep fields added by later versions.
"""
