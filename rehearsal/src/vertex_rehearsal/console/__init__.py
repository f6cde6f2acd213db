"""The emulator's console: an HTML page, and the API that it reads.

Files, in the order of their imports:

- api.py: JSON API of the emulator's console: resources, log entries, buckets and objects, in pages.
- page.py: The console: the HTML page at the emulator's root, and the routes of its JSON API.
"""
