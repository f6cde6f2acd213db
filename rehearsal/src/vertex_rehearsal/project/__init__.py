"""The emulated project: who may do what, quotas, regions, and faults that were asked for.

Files, in the order of their imports:

- quotas.py: Vertex AI's quotas of custom training: the metric of each accelerator, and what a job asks of it.
- faults.py: Faults: calls that fail because somebody has asked for it, to see what a client makes of it.
- permissions.py: The permission that a method asks for, by IAM's rule: API, resource, verb.
- locations.py: The regions of a project, which every Google API can be asked for.
- project.py: What a project has and what it lacks, as its user has written it down to rehearse it.
- project_file.py: project.json in a rehearsal's directory: read at its start, and again whenever it has changed.
- authorization.py: Admission: whether a call may be made in this project, and whether it is one that was told to
  fail.
- storage_authorization.py: Which method of Cloud Storage a request calls, by the name that Google's reference gives
  it; and its refusals.
"""
