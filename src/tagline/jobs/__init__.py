"""A run as a job elsewhere: planned, checked, priced, submitted, followed and explained."""
