"""Field masks: the JSON API's parameter `fields` selects parts of a response."""

import re
from typing import Any

from vertex_rehearsal.cloud_storage import errors

_Tree = dict[str, "_Tree"]


def select_fields(document: Any, fields: str, kind: str) -> Any:
    """Return the part of a document that `fields` selects: `kind,items(name,size),nextPageToken`, `items/name`, `*`."""
    if not fields:
        return document
    tree = _parse_fields(fields)
    _check_fields(tree, _KINDS[kind], fields)
    return _select_keys(document, tree)


def _parse_fields(fields: str) -> _Tree:
    words = re.findall(r"[^,()/]+|[,()/]", fields)
    position = 0

    def parse_group() -> _Tree:
        nonlocal position
        group: _Tree = {}
        node = group
        while position < len(words):
            word = words[position]
            position += 1
            if word == ")":
                return group
            if word == ",":
                node = group
            elif word == "(":
                node.update(parse_group())
            elif word != "/":
                node = node.setdefault(word.strip(), {})
        return group

    parsed = parse_group()
    if position < len(words) or fields.count("(") != fields.count(")"):
        raise errors.invalid_request(f"Invalid field selection {fields}", location="fields")
    return parsed


def _check_fields(tree: _Tree, known: _Tree, fields: str) -> None:
    """Refuse unknown fields; a map with user-defined keys may have any."""
    for name, below in tree.items():
        if name == "*":
            for child in known.values():
                if below and child:
                    _check_fields(below, child, fields)
        elif name not in known and "*" not in known:
            raise errors.invalid_request(f"Invalid field selection {name}", location="fields")
        elif below:
            children = known.get(name, known.get("*", {}))
            if not children:
                raise errors.invalid_request(f"Invalid field selection {next(iter(below))}", location="fields")
            _check_fields(below, children, fields)


def _select_keys(document: Any, tree: _Tree) -> Any:
    if not tree:
        return document
    if isinstance(document, list):
        return [_select_keys(item, tree) for item in document]
    if not isinstance(document, dict):
        return document
    chosen = {}
    for key, value in document.items():
        if key in tree or "*" in tree:
            chosen[key] = _select_keys(value, tree.get(key, tree.get("*", {})))
    return chosen


_ENTRY = (
    "kind,id,selfLink,bucket,object,generation,entity,role,email,entityId,domain,projectTeam(projectNumber,team),etag"
)
_OBJECT = (
    "kind,id,selfLink,mediaLink,name,bucket,generation,metageneration,contentType,storageClass,size,md5Hash,crc32c,etag,"
    "contentEncoding,contentLanguage,contentDisposition,cacheControl,metadata(*),customTime,temporaryHold,eventBasedHold,"
    "retention(mode,retainUntilTime),retentionExpirationTime,contexts(custom(*(value,createTime,updateTime))),timeCreated,"
    "timeFinalized,updated,timeDeleted,timeStorageClassUpdated,softDeleteTime,hardDeleteTime,restoreToken,componentCount,"
    f"customerEncryption(encryptionAlgorithm,keySha256),kmsKeyName,owner(entity,entityId),acl({_ENTRY})"
)
_BUCKET = (
    "kind,id,selfLink,name,projectNumber,generation,metageneration,etag,timeCreated,updated,location,locationType,"
    "storageClass,rpo,labels(*),versioning(enabled),lifecycle(rule(action(type,storageClass),condition(*))),"
    "softDeletePolicy(retentionDurationSeconds,effectiveTime),softDeleteTime,hardDeleteTime,"
    "cors(origin,method,responseHeader,maxAgeSeconds),website(mainPageSuffix,notFoundPage),"
    "logging(logBucket,logObjectPrefix),defaultEventBasedHold,retentionPolicy(effectiveTime,isLocked,retentionPeriod),"
    "objectRetention(mode),billing(requesterPays),hierarchicalNamespace(enabled),customPlacementConfig(dataLocations),"
    "iamConfiguration(bucketPolicyOnly(enabled,lockedTime),uniformBucketLevelAccess(enabled,lockedTime),"
    "publicAccessPrevention),autoclass(enabled,toggleTime,terminalStorageClass,terminalStorageClassUpdateTime),"
    "encryption(*(*)),ipFilter(*(*)),satisfiesPZS,satisfiesPZI,owner(entity,entityId),"
    f"acl({_ENTRY}),defaultObjectAcl({_ENTRY})"
)
_KINDS = {
    kind: _parse_fields(fields)
    for kind, fields in {
        "object": _OBJECT,
        "objects": f"kind,nextPageToken,prefixes,items({_OBJECT})",
        "bucket": _BUCKET,
        "buckets": f"kind,nextPageToken,unreachable,items({_BUCKET})",
        "rewrite": f"kind,totalBytesRewritten,objectSize,done,rewriteToken,resource({_OBJECT})",
        "policy": "kind,resourceId,version,etag,bindings(role,members,condition(*))",
        "acl": _ENTRY,
        "acls": f"kind,items({_ENTRY})",
    }.items()
}
"""The fields of each kind of response."""
