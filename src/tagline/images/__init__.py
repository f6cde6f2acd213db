"""Packages and container images of Tagline and of bundles: built here or by Cloud Build, and pushed to registries.

Files, in the order of their imports:

- wheels.py: Tagline as a wheel, made of the files that run here, and the versions of what it needs: for places that
  lack them.
- sdist.py: Tagline as a Python package for Google's images: an sdist of what runs here, and whether it installs
  there.
- google_images.py: Google's own images for training, and whether Tagline fits into one: facts with their dates.
- image_registries.py: Registries of images: whether one has an image, a repository to push to, and a login that
  leaves no trace.
- image_builders.py: What builds container images on this machine, and pushes them: docker, podman or buildah.
- cloud_build.py: Images built by Cloud Build, with no builder on this machine: submitted, waited for, and explained
  when they fail.
- dockerfiles.py: Container images: what a Dockerfile says, a tag that names the contents, and how one gets to where
  jobs find it.
"""
