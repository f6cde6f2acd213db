"""The emulated APIs: their methods, messages, HTTP rules and errors, as Google's libraries describe them.

Files, in the order of their imports:

- messages.py: The message classes of Google's APIs, built from descriptors in a separate descriptor pool.
- errors.py: Google's API errors: one exception with a canonical code, and its HTTP and gRPC forms.
- methods.py: The RPCs of the emulated APIs with their messages and HTTP rules, read from the installed client
  libraries.
- transcoding.py: Transcodes HTTP requests to messages and messages to JSON by the HTTP rules of Google's APIs.
- v1beta1.py: Translates v1beta1 requests and responses to and from v1, whose handlers answer them.
"""
