"""Vertex ML Metadata, experiments and TensorBoard."""
