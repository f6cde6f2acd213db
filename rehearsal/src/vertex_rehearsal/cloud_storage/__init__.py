"""Emulator of Cloud Storage: objects are plain files, served over Google's JSON and XML APIs.

Files, in the order of their imports:

- methods.py: The methods of the JSON API by the names in Google's reference, with the limits of their emulation.
- errors.py: Errors of Cloud Storage: status, message, the JSON API's reason and the XML API's code.
- messages.py: Requests and responses, independent of any web framework; bodies are streamed.
- checksums.py: CRC32C and MD5 of streamed bytes, in the base64 form that Google's APIs use.
- names.py: Valid names of buckets and objects, and an object's path below its bucket's directory.
- preconditions.py: Preconditions on the generation, metageneration or ETag of a resource, or on its absence.
- mime.py: Multipart bodies: `multipart/related` as a stream, `multipart/mixed` as a whole.
- records.py: Records of buckets and objects.
- json_values.py: Parsing of the JSON API's input: bodies, merge patches and typed values.
- policies.py: IAM policies of buckets: validated, stored and returned, but not enforced.
- retention.py: Protection from deletion and replacement: holds, bucket retention policies and object retention.
- locations.py: Bucket locations: regions, multi-regions and dual-regions, as Google's page "Bucket locations" lists
  them.
- contexts.py: Object contexts: keys and values that a user attaches to an object, and the list filter on them.
- object_settings.py: Settings of an object: validated at creation, on patches and updates, and for copies.
- bucket_settings.py: Settings of a bucket: validated and completed at creation and on changes; unsupported ones are
  refused by name.
- access_controls.py: Access control lists of buckets and objects: validated, stored and returned, but not enforced.
- customer_keys.py: Customer-supplied encryption keys: an object is readable only with the key that it was written
  with.
- field_masks.py: Field masks: the JSON API's parameter `fields` selects parts of a response.
- files.py: The files of a store: objects are plain files in their bucket's directory where the name allows it.
- media.py: Downloads: byte ranges, checksums, and decompressive transcoding for clients that do not accept gzip.
- index.py: The index of a store in one SQLite file: buckets, objects, unfinished uploads and pending file moves.
- resources.py: Resources of the JSON API, built from the records of buckets and objects.
- listing.py: Lists a bucket's objects in pages: by prefix, delimiter, offsets, glob and filter, in the byte order
  of names.
- journal.py: Journal: changes of the index and the file moves that belong to them, applied together across crashes.
- external_changes.py: Synchronises the index with files that other processes write, change or remove in a bucket's
  directory.
- store.py: Store of buckets and objects, with generations and preconditions, in plain files and an index. No HTTP.
- uploads.py: Uploads of several requests: resumable uploads, and multipart uploads of numbered parts. No HTTP.
- access_lists.py: The JSON API's methods for access control lists: of buckets, of their new objects, and of
  objects.
- json_api.py: The JSON API: `/storage/v1`, `/upload/storage/v1`, `/download/storage/v1` and their batches.
- xml_api.py: The XML API at `/<bucket>/<object>`: for transfer managers, signed URLs and plain HTTP clients.
- application.py: Cloud Storage as an ASGI application, and a local server for it.
"""
