"""What runs on this machine in place of the cloud: processes, containers, replicas, and the queue of jobs.

Files, in the order of their imports:

- containers.py: Runs and removes containers through podman or docker, and lists images.
- processes.py: Finds and ends processes together with all of their descendants, even detached ones.
- environments.py: Virtual environments for a job's packages, installed in the same steps as by Vertex AI's
  executor.
- images.py: Decides whether an image can run on this machine, and whether as a container or as a process.
- workloads.py: Runs a program as a process or a container, logs its output, and ends it with all of its
  descendants.
- replicas.py: The replicas of a job: each a program with its own address and the environment that Vertex AI sets.
- queue.py: A first-in, first-out job queue with limited concurrency, cancellation and recovery after a restart.
"""
