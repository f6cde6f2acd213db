"""Cloud Storage played on this machine: objects are plain files, asked for over Google's JSON and XML APIs."""
