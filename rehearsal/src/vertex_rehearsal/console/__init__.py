"""The emulator's console: an HTML page, and the API that it reads.

Files, in the order of their imports:

- api.py: What the rehearsal's page shows, as values of JSON: resources, log entries, buckets and objects, a page at
  a time.
- page.py: The page at the rehearsal's root, which asks for everything that it shows at paths of its own.
"""
