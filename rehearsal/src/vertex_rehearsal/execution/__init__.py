"""What runs on this machine in place of the cloud: processes, containers, replicas, and the queue of jobs."""
