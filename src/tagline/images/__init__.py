"""Tagline and a bundle as packages and container images, and how they get to where jobs run."""
