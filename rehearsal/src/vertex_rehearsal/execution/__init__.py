"""What runs on this machine in place of the cloud: processes, containers, replicas, and the queue of jobs.

Files, in the order of their imports:

- containers.py: Containers through podman or docker, where one of them works.
- processes.py: Processes that are ended with everything they have started, whatever became of it.
- environments.py: A fresh Python environment for a job's packages, filled as Vertex AI's executor fills it.
- images.py: Which images can run here, and whether as containers or as processes.
- workloads.py: A program of a rehearsal: a process or a container, its output read as it comes, until nothing of it
  is left.
- replicas.py: The replicas of a job: programs with addresses of their own and the environment that Vertex AI gives
  them.
- queue.py: Jobs that wait for their turn: run a few at a time in the order they came, cancelled, resumed after a
  restart.
"""
