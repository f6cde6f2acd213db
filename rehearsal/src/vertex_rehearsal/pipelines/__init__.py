"""Pipeline jobs: compiled Kubeflow pipelines, task by task."""
