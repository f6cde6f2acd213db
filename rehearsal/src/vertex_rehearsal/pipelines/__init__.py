"""Pipeline jobs: compiled Kubeflow pipelines, task by task.

Files, in the order of their imports:

- spec.py: Compiled Kubeflow pipelines: what is refused of one before it runs, and how its values are typed.
- conditions.py: The conditions of pipeline tasks, as the Kubeflow compiler writes them: a small part of CEL.
- placeholders.py: What stands for values on a pipeline task's command line: `{{$}}`, `{{$.inputs.parameters['x']}}`
  and others.
- task_values.py: What the tasks of a pipeline hand to each other: their outcomes, and the inputs, items and outputs
  made of these.
- task_details.py: What is written down of a pipeline's tasks: details in their job, as Vertex AI shows them, and
  lines in its log.
- task_jobs.py: The tasks of a pipeline that run something: each is a custom job, and gives what that leaves in its
  bucket.
- runner.py: A pipeline that runs: its tasks in their order, each as soon as those are done that it waits for.
- service.py: Pipeline jobs: compiled Kubeflow pipelines, accepted or refused, run and kept.
"""
