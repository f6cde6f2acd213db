"""Storage at local paths and gs:// addresses: atomic writes, copies, hashes, inputs and models of JSON files.

Files, in the order of their imports:

- atomic.py: Files and directories of this machine: written whole or not at all, locked, replaced and removed.
- hashing.py: SHA-256 of files, and one of many files.
- addresses.py: Paths and gs:// addresses: told apart, fetched into copies, delivered, copied and removed.
- inputs.py: Files that are read: named by globs, unzipped, standard input and pipes kept on disk, and watched for
  changes.
- file_models.py: FileModel: the base of models of JSON files, frozen, which keep what later versions add.
"""
