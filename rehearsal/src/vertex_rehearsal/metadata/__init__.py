"""Vertex ML Metadata, experiments and TensorBoard.

Files, in the order of their imports:

- tensorboards.py: Vertex AI TensorBoard: tensorboards, their experiments, runs and time series, and the points of
  those.
- service.py: Vertex ML Metadata, which Vertex AI Experiments is made of: contexts, artifacts, executions and their
  lineage.
- schemas.py: Schemas of metadata: kept by name and version, for contexts, artifacts and executions that name them.
"""
