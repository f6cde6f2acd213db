"""A local emulator of Vertex AI, Cloud Storage and Cloud Logging, for any of their clients."""

__version__ = "0.1.0"
