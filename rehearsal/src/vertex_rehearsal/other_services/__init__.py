"""Google's other APIs that clients of Vertex AI need, emulated at `/-/SERVICE/PATH`.

Files, in the order of their imports:

- methods.py: Methods and requests of the other services, each a class whose METHODS name its routes and handlers.
- documents.py: Storage of the other services: JSON documents by name, in the emulator's database.
- build_specs.py: Validation of a build's specification and its substitutions, before the build is accepted.
- build_logs.py: The log of a build, streamed to a bucket and to Cloud Logging.
- artifact_registry.py: Artifact Registry: repositories that were created, and in them the local images with their
  names.
- builds.py: Runs one build, from its source to its images, by podman, docker or buildah, and writes its log.
- cloud_build.py: Cloud Build: validates builds, runs them one at a time, and stores them.
- resource_manager.py: Cloud Resource Manager: a project's number, and the caller's permissions in it.
- secret_manager.py: Secret Manager: the secrets of project.json, each with a single version.
- service_accounts.py: Service accounts of IAM: whether an account exists, and the caller's permissions on it.
- service_usage.py: Service Usage: the enabled APIs of a project, and its quotas.
- routes.py: Routes of the other services: finds the method of a request, checks its permission and calls it.
"""
