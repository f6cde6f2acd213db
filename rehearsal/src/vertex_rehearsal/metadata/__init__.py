"""Vertex ML Metadata, experiments and TensorBoard.

Files, in the order of their imports:

- tensorboards.py: Vertex AI TensorBoard: tensorboards, experiments, runs, time series and their data points.
- service.py: Vertex ML Metadata, the basis of Vertex AI Experiments: contexts, artifacts, executions and their
  lineage.
- schemas.py: Metadata schemas: stored by name and version, for the nodes that name them.
"""
