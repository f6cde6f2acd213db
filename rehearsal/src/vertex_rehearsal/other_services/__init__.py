"""Google's other APIs that clients of Vertex AI need, emulated at `/-/SERVICE/PATH`.

Files, in the order of their imports:

- methods.py: What a neighbour is: a class whose METHODS say what is asked of it, and who answers.
- documents.py: What neighbours keep: documents of JSON by their names, in the rehearsal's one file.
- build_specs.py: What a build may say: checked, and with its substitutions made, before anything is done.
- build_logs.py: The log of a build, in a bucket and in Cloud Logging, as it comes.
- artifact_registry.py: Artifact Registry: repositories that are made, and in them the images of this machine that
  are named for them.
- builds.py: One build, from its source to its images: performed by podman, docker or buildah, and written down in
  its log.
- cloud_build.py: Cloud Build: builds accepted or refused, performed one at a time, and kept.
- resource_manager.py: Cloud Resource Manager: a project's number, and what whoever asks may do in it.
- secret_manager.py: Secret Manager: the secrets of project.json, each in its only version.
- service_accounts.py: Service accounts of IAM: whether one is there, and what whoever asks may do with it.
- service_usage.py: Service Usage: which APIs a project has enabled, and its quotas.
- routes.py: The door to the neighbours: which of them is asked, what it answers, and what is not played.
"""
