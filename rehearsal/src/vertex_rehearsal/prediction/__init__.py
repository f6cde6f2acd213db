"""Models, endpoints, online prediction and batch prediction.

Files, in the order of their imports:

- batch_inputs.py: Instances of a batch prediction: read one by one from files in Cloud Storage, as Vertex AI sends
  them to servers.
- models.py: Models: uploaded with a copy of their files, kept in versions with aliases, and found by either.
- servers.py: Servers of a model: programs with Vertex AI's serving environment, kept healthy and asked in turn.
- deployments.py: The servers of every deployed model: started with it, started again after a restart, and ended.
- service.py: Predictions: a request handed to one of an endpoint's models, as its traffic split says, and the
  answer back.
- evaluations.py: Model evaluations: measured elsewhere, imported, and kept with the version of the model that they
  are about.
- model_service.py: The service of models: uploaded, versioned, copied, changed and deleted.
- endpoints.py: Endpoints: made, changed, and given models, whose servers start with them and share the traffic.
- batch_runner.py: One batch prediction from its first server to its last file.
- batch_service.py: Batch prediction jobs: accepted or refused, queued, run a few at a time, and kept.
"""
