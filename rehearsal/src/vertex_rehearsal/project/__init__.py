"""The emulated project: who may do what, quotas, regions, and faults that were asked for.

Files, in the order of their imports:

- quotas.py: Vertex AI's quotas of custom training: metrics, default limits and the demand of a job.
- faults.py: Fault injection: calls that fail on demand, to test how clients handle it.
- permissions.py: Derives the IAM permission that a method requires: API, resource, verb.
- locations.py: The Locations service, which lists a project's regions.
- project.py: The emulated project: its services, permissions, quotas, capacity, secrets and images.
- project_file.py: Reads and validates project.json in the emulator's directory, at the start and after every
  change.
- authorization.py: Authorizes calls by enabled services and permissions, and injects the planned faults.
- storage_authorization.py: Authorizes Cloud Storage requests: maps each to its documented method and permission.
"""
