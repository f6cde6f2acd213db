"""A run as a job elsewhere: planned, checked, priced, submitted, followed and explained.

Files, in the order of their imports:

- prices.py: What a job would cost: by the hour from the table of machines, and how many hours it may take.
- uploads.py: What of this machine a job in a bucket's reach needs: the files its spec names, each at an address of
  its own.
- custom_job.py: A run as a custom job of Vertex AI: the request, as the REST API takes it, and the same for gcloud.
- diagnosis/: Why a job failed: its log, the root of its traceback, known causes and what helps.
- launchers/: The contract of a launcher, which takes a job to a place, and what it is told about the job.
- records.py: Jobs: what a run remembers of the job that does it, how it is watched, why it failed, and where it
  goes next.
- throughput.py: How fast earlier runs have learned, read from their events, for those who want to know how long
  another will take.
- preflight.py: What is wrong with the place a job would go to, before anything is spent there: by the tables, then
  by asking.
"""
