"""Custom jobs and training pipelines.

Files, in the order of their imports:

- validation.py: What Vertex AI refuses before anything runs: each with the field that is to blame.
- runner.py: A job from its first process to its last: environments, replicas, restarts, and how it ended.
- service.py: Custom jobs: accepted or refused, queued, run a few at a time, and kept.
- training_pipelines.py: Training pipelines of custom training: each is a custom job, and a model made of what it
  leaves.
"""
