"""Models, endpoints, online prediction and batch prediction.

Files, in the order of their imports:

- batch_inputs.py: Reads the instances of a batch prediction from files in Cloud Storage, in the form Vertex AI
  sends to servers.
- models.py: Stored model versions: names, aliases, lookup and the location of their files.
- servers.py: Model servers with Vertex AI's serving environment: health checks, restarts and round-robin requests.
- deployments.py: Starts, restarts and ends the servers of deployed models.
- service.py: The API of online predictions: requests routed to an endpoint's models by its traffic split.
- evaluations.py: The API of model evaluations: imported results, stored with the model version they belong to.
- model_service.py: The API of models: uploaded, versioned, copied, updated and deleted.
- endpoints.py: The API of endpoints: created, updated, deleted, and models deployed to them with a traffic split.
- batch_runner.py: Runs one batch prediction job: starts the servers, sends the instances, writes the result files.
- batch_service.py: The API of batch prediction jobs: validation, queueing and deletion.
"""
