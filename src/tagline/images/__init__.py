"""Packages and container images of Tagline and of bundles: built here or by Cloud Build, and pushed to registries.

Files, in the order of their imports:

- wheels.py: Build a wheel of the running Tagline, and pin the installed versions of its dependencies.
- sdist.py: Build an sdist of the running Tagline for Google's images, and check that its dependencies are
  compatible.
- google_images.py: Google's prebuilt training images: their versions and end dates, and whether Tagline can run in
  one.
- image_registries.py: Image registries: look up images, create repositories in Artifact Registry, and log in
  temporarily.
- image_builders.py: Build and push container images on this machine with docker, podman or buildah.
- cloud_build.py: Build images with Cloud Build, without a builder on this machine: submit, wait, and explain
  failures.
- dockerfiles.py: Container images: Dockerfiles, tags by the hash of the contents, and delivery to the registry.
"""
