"""Pipeline jobs: compiled Kubeflow pipelines, task by task.

Files, in the order of their imports:

- spec.py: Validates compiled Kubeflow pipelines and converts values to their parameters' types.
- conditions.py: Evaluates the conditions of pipeline tasks, in the subset of CEL that the Kubeflow compiler writes.
- placeholders.py: What stands for values on a pipeline task's command line: `{{$}}`, `{{$.inputs.parameters['x']}}`
  and others.
- task_values.py: Values passed between the tasks of a pipeline: outcomes, inputs, loop items and outputs.
- task_details.py: Records the state of a pipeline's tasks: task details in the job, as on Vertex AI, and log
  entries.
- task_jobs.py: Runs pipeline tasks as custom jobs and reads the outputs that they write to their bucket.
- runner.py: Runs a pipeline job: each task as soon as its dependencies are done.
- service.py: The API of pipeline jobs: compiled Kubeflow pipelines, validated, run, cancelled and deleted.
"""
