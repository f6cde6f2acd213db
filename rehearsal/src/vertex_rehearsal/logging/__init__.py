"""Cloud Logging: the entries of jobs, kept and queried."""
