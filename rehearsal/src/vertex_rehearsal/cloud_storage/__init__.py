"""Emulator of Cloud Storage: objects are plain files, served over Google's JSON and XML APIs.

Files, in the order of their imports:

- methods.py: Every method of the JSON API by the name that Google's reference gives it, with what is missing from
  it here.
- errors.py: Why a request is refused: the status, Google's reason in the JSON API, Google's code in the XML API,
  one message.
- messages.py: A request and its answer, free of any web framework; bodies are read and written piece by piece.
- checksums.py: CRC32C and MD5 of bytes as they pass by, in the base64 form that Google's APIs use.
- names.py: Which names buckets and objects may have, and where in a bucket's directory an object of a name is kept.
- preconditions.py: Preconditions: what must be true of an object, or of its absence, for a request to go on.
- mime.py: Bodies of several parts: `multipart/related` as it streams in, `multipart/mixed` in one piece.
- records.py: What is known of a bucket and of an object, as values.
- json_values.py: JSON as the JSON API takes it: bodies, merge patches, and values of the kind that a field wants.
- policies.py: The IAM policy of a bucket: checked, kept and answered. It keeps nobody out: here everybody may do
  all.
- retention.py: What keeps an object from being deleted or replaced: holds, its bucket's retention policy, and its
  own retention.
- locations.py: Where buckets can be: regions, multi-regions and dual-regions, as Google's page "Bucket locations"
  lists them.
- contexts.py: Object contexts: keys and values that a user attaches to an object, and the filter of lists that asks
  for them.
- object_settings.py: What may be set of an object: in a new one, by patches and updates, and in copies.
- bucket_settings.py: What may be set of a bucket, when it is made and later; what is not played is refused by its
  name.
- access_controls.py: Access control lists of buckets and objects: checked, kept and answered. They keep nobody out:
  all may do all.
- customer_keys.py: Customer-supplied encryption keys: who reads an object has to bring the key that it was written
  with.
- field_masks.py: Which fields of an answer were asked for, by the JSON API's parameter `fields`.
- files.py: The files of a store: objects are plain files in their bucket's directory; what no directory can hold
  lies aside.
- media.py: An object's bytes as an answer: ranges, checksums, and content unpacked for clients that do not take
  gzip.
- index.py: The index of a store: buckets, objects, unfinished uploads and file moves, in one SQLite file.
- resources.py: Buckets and objects as the JSON API's resources.
- listing.py: Pages of a bucket's objects: by prefix, delimiter, offsets and glob, in the order of their names'
  bytes.
- journal.py: Journal: changes of the index and moves of files that are done together, whenever the process is
  killed.
- external_changes.py: Files that others wrote, changed or removed in a bucket's directory, brought into the index
  as objects.
- store.py: Store: buckets and objects with generations and preconditions, kept as plain files and an index. No
  HTTP.
- uploads.py: Uploads that take several requests: resumable ones in one piece, multipart ones in numbered parts. No
  HTTP.
- access_lists.py: The JSON API's methods about access control lists: those of buckets, of their new objects, and of
  objects.
- json_api.py: The JSON API: `/storage/v1`, `/upload/storage/v1`, `/download/storage/v1` and their batches.
- xml_api.py: The XML API, at `/<bucket>/<object>`: what transfer managers, signed addresses and plain HTTP clients
  use.
- application.py: Cloud Storage as an ASGI application, and a server of it on a port of this machine.
"""
