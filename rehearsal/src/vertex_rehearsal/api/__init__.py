"""The emulated APIs: their methods, messages, HTTP rules and errors, as Google's libraries describe them.

Files, in the order of their imports:

- messages.py: The messages of Google's APIs, known from their descriptions and kept apart from those that other
  packages load.
- errors.py: Google's errors: one exception with a canonical code, answered by every door in its own form.
- methods.py: Every RPC of the played APIs, with its messages and HTTP rules: read from the installed client
  libraries.
- transcoding.py: HTTP paths, queries and JSON bodies made messages, and messages made JSON, by the rules of
  Google's APIs.
- v1beta1.py: v1beta1, as far as v1 has the same: asked in its names, answered by v1's handlers, told in its names
  again.
"""
