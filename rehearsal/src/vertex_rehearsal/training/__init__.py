"""Custom jobs and training pipelines.

Files, in the order of their imports:

- validation.py: Validates requests as Vertex AI does; each error names the invalid field.
- runner.py: Runs one custom job: installs packages, starts replicas, handles retries, preemption and cancellation.
- service.py: The API of custom jobs: validation, quotas, queueing, preemption and deletion.
- training_pipelines.py: The API of training pipelines: each runs a custom job and uploads the model that the job
  wrote.
"""
