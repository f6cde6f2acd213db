"""Vertex AI, Cloud Storage and Cloud Logging played on this machine, for Google's own unmodified clients."""
