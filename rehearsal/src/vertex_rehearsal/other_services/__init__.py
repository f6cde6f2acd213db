"""What is asked of Google beside Vertex AI, Cloud Storage and Cloud Logging, played at `/-/SERVICE/PATH`."""
