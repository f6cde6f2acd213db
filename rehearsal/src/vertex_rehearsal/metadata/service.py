"""Vertex ML Metadata, the basis of Vertex AI Experiments: contexts, artifacts, executions and their lineage."""

import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vertex_rehearsal import listing
from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import message_class, protobuf, v1
from vertex_rehearsal.prediction import models
from vertex_rehearsal.training import validation

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

ID = re.compile(r"[a-z0-9-]{4,128}")
MOST_PARENTS = 10
LARGEST_METADATA = 200 * 1024
LARGEST_SAMPLE = 100
AMONG = "among"
"""Pseudo field by which a rewritten filter tests membership in a precomputed set of names."""
QUOTED = r'"(?:[^"\\]|\\.)*"'
CLAUSE = re.compile(
    rf"""in_context\(\s*(?P<member>{QUOTED})\s*\)
    |(?P<relation>parent_contexts|child_contexts)\s*:\s*(?P<contexts>{QUOTED}(?:\s*,\s*{QUOTED})*)
    |(?P<field>metadata(?:\.(?:{QUOTED}|\w+))+)\.(?:number|string|bool)_value\b
    |{QUOTED}""",
    re.X,
)
"""Clauses that only metadata filters have; quoted strings are matched to be left unchanged."""


@dataclass(frozen=True)
class NodeKind:
    """A kind of node: context, artifact or execution."""

    noun: str
    changeable: tuple[str, ...]

    @property
    def collection(self) -> str:
        """Its collection in resource names: contexts, artifacts or executions."""
        return f"{self.noun}s"


COMMON = ("display_name", "description", "labels", "metadata")
CONTEXT = NodeKind("context", COMMON)
ARTIFACT = NodeKind("artifact", (*COMMON, "uri", "state"))
EXECUTION = NodeKind("execution", (*COMMON, "state"))
UNCHECKED = "Schemas are not checked."


class Experiments:
    """The RPCs of google.cloud.aiplatform.v1.MetadataService about stores, nodes and lineage."""

    LOOKUPS = {"MetadataStore": 100, "Context": 100, "Artifact": 100, "Execution": 100}  # noqa: RUF012
    LIMITS = {  # noqa: RUF012
        "CreateMetadataStore": "Encryption and Dataplex have no effect.",
        "CreateArtifact": UNCHECKED,
        "CreateContext": UNCHECKED,
        "CreateExecution": UNCHECKED,
        "QueryArtifactLineageSubgraph": "max_hops of 0 is none given: the whole graph.",
    }

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._database = context.database

    def create_metadata_store(self, request: Any) -> Any:
        """Create an empty store."""
        validation.check_parent(request.parent)
        store = v1.MetadataStore(description=request.metadata_store.description)
        store.name = (
            f"{request.parent}/metadataStores/{check_or_create_id(request.metadata_store_id, 'metadata_store_id')}"
        )
        store.create_time.GetCurrentTime()
        store.update_time.CopyFrom(store.create_time)
        self._database.add(store)
        return self._context.operations.done(store.name, v1.CreateMetadataStoreOperationMetadata(), lambda: store)

    def delete_metadata_store(self, request: Any) -> Any:
        """Delete a store and everything in it."""
        self._database.get(request.name)
        self._database.remove_all(request.name)
        metadata = v1.DeleteMetadataStoreOperationMetadata()
        return self._context.operations.done(request.name, metadata, protobuf.Empty)

    def create_context(self, request: Any) -> Any:
        """Create a context."""
        return self._create_node(CONTEXT, request.parent, request.context, request.context_id)

    def create_artifact(self, request: Any) -> Any:
        """Create an artifact."""
        return self._create_node(ARTIFACT, request.parent, request.artifact, request.artifact_id)

    def create_execution(self, request: Any) -> Any:
        """Create an execution."""
        return self._create_node(EXECUTION, request.parent, request.execution, request.execution_id)

    def list_contexts(self, request: Any) -> Any:
        """Return a page of contexts, newest first."""
        contexts, token = self._list_page(CONTEXT, request)
        return v1.ListContextsResponse(contexts=contexts, next_page_token=token)

    def list_artifacts(self, request: Any) -> Any:
        """Return a page of artifacts, newest first."""
        artifacts, token = self._list_page(ARTIFACT, request)
        return v1.ListArtifactsResponse(artifacts=artifacts, next_page_token=token)

    def list_executions(self, request: Any) -> Any:
        """Return a page of executions, newest first."""
        executions, token = self._list_page(EXECUTION, request)
        return v1.ListExecutionsResponse(executions=executions, next_page_token=token)

    def update_context(self, request: Any) -> Any:
        """Update the fields in the mask, or all fields that are set."""
        return self._update_node(CONTEXT, request, request.context)

    def update_artifact(self, request: Any) -> Any:
        """Update the fields in the mask, or all fields that are set."""
        return self._update_node(ARTIFACT, request, request.artifact)

    def update_execution(self, request: Any) -> Any:
        """Update the fields in the mask, or all fields that are set."""
        return self._update_node(EXECUTION, request, request.execution)

    def delete_context(self, request: Any) -> Any:
        """Delete a context; its members remain."""
        return self._delete_node(request)

    def delete_artifact(self, request: Any) -> Any:
        """Delete an artifact and its events."""
        return self._delete_node(request)

    def delete_execution(self, request: Any) -> Any:
        """Delete an execution and its events."""
        return self._delete_node(request)

    def purge_contexts(self, request: Any) -> Any:
        """Delete all contexts that match a filter, or return which would be deleted."""
        return self._purge_nodes(CONTEXT, request, v1.PurgeContextsMetadata(), v1.PurgeContextsResponse)

    def purge_artifacts(self, request: Any) -> Any:
        """Delete all artifacts that match a filter, or return which would be deleted."""
        return self._purge_nodes(ARTIFACT, request, v1.PurgeArtifactsMetadata(), v1.PurgeArtifactsResponse)

    def purge_executions(self, request: Any) -> Any:
        """Delete all executions that match a filter, or return which would be deleted."""
        return self._purge_nodes(EXECUTION, request, v1.PurgeExecutionsMetadata(), v1.PurgeExecutionsResponse)

    def add_context_artifacts_and_executions(self, request: Any) -> Any:
        """Add nodes to a context; those that it has already are skipped."""
        with self._database.lock:
            members = [self._get_node(name).name for name in (*request.artifacts, *request.executions)]
            rows = [(self._get_node(request.context).name, member, b"") for member in members]
            self._database.run_many("INSERT OR IGNORE INTO links (source, target, content) VALUES (?, ?, ?)", rows)
        return v1.AddContextArtifactsAndExecutionsResponse()

    def add_context_children(self, request: Any) -> Any:
        """Add child contexts to a context; those that it has already are skipped."""
        with self._database.lock:
            parent = self._get_node(request.context).name
            children = [self._get_node(name) for name in request.child_contexts]
            ancestors = self._find_ancestors(parent)
            for child in children:
                if child.name in ancestors:
                    raise invalid_argument(
                        "child_contexts", f"{child.name} cannot be a child of {parent}: that makes a circle."
                    )
                if parent not in child.parent_contexts and len(child.parent_contexts) == MOST_PARENTS:
                    raise invalid_argument(
                        "child_contexts", f"{child.name} has {MOST_PARENTS} parents, which is the most."
                    )
            for child in children:
                # Google's SDK keeps using the child, and the etag, that it has read before.
                with self._database.change(child.name, renews_etag=False) as stored:
                    if parent not in stored.parent_contexts:
                        stored.parent_contexts.append(parent)
        return v1.AddContextChildrenResponse()

    def remove_context_children(self, request: Any) -> Any:
        """Remove child contexts from a context."""
        with self._database.lock:
            parent = self._get_node(request.context).name
            self._detach_children(parent, [self._get_node(name) for name in request.child_contexts])
        return v1.RemoveContextChildrenResponse()

    def add_execution_events(self, request: Any) -> Any:
        """Record inputs and outputs of an execution; an artifact's existing event with it is kept."""
        with self._database.lock:
            execution = self._get_node(request.execution).name
            rows = []
            for number, requested in enumerate(request.events):
                if not requested.type_:
                    raise invalid_argument(f"events[{number}].type", "Required field is not set: type.")
                event = v1.Event(
                    execution=execution, artifact=self._get_node(requested.artifact).name, type_=requested.type_
                )
                event.labels.update(requested.labels)
                event.event_time.GetCurrentTime()
                rows.append((execution, event.artifact, event.SerializeToString()))
            self._database.run_many("INSERT OR IGNORE INTO links (source, target, content) VALUES (?, ?, ?)", rows)
        return v1.AddExecutionEventsResponse()

    def query_execution_inputs_and_outputs(self, request: Any) -> Any:
        """Return an execution with its input and output artifacts."""
        execution = self._database.get(request.execution)
        events = self._list_events(execution.name)
        return self._build_subgraph([execution.name, *(event.artifact for event in events)], events)

    def query_context_lineage_subgraph(self, request: Any) -> Any:
        """Return the members of a context, and the events between them."""
        context = self._database.get(request.context)
        members = self._list_members(context.name)
        events = [event for name in sorted(members) for event in self._list_events(name)]
        inside = [event for event in events if {event.artifact, event.execution} <= members]
        return self._build_subgraph(members, {event.SerializeToString(): event for event in inside}.values())

    def query_artifact_lineage_subgraph(self, request: Any) -> Any:
        """Return the lineage of an artifact in both directions, up to `max_hops` away."""
        if request.max_hops < 0:
            raise invalid_argument("max_hops", f"max_hops must not be negative: {request.max_hops}.")
        start = self._database.get(request.artifact).name
        matches = self._compile_filter(ARTIFACT, request.filter)
        visited, edges, frontier, hops = {start}, dict[bytes, Any](), {start}, 0
        while frontier and (hops < request.max_hops or not request.max_hops):
            hops += 1
            events = [event for name in sorted(frontier) for event in self._list_events(name)]
            neighbours = {name for event in events for name in (event.artifact, event.execution)} - visited
            frontier = {
                name for name in neighbours if _read_noun(name) != "artifact" or matches(self._database.get(name))
            }
            visited |= frontier
            edges |= {
                event.SerializeToString(): event for event in events if {event.artifact, event.execution} <= visited
            }
        return self._build_subgraph(visited, edges.values())

    def _create_node(self, kind: NodeKind, parent: str, template: Any, requested_id: str) -> Any:
        self._database.get(parent)
        node = type(template)()
        node.CopyFrom(template)
        node.name = f"{parent}/{kind.collection}/{check_or_create_id(requested_id, f'{kind.noun}_id')}"
        if kind is CONTEXT:
            node.ClearField("parent_contexts")
        _validate_node(node, kind)
        node.create_time.GetCurrentTime()
        node.update_time.CopyFrom(node.create_time)
        self._database.add(node)
        return node

    def _update_node(self, kind: NodeKind, request: Any, changes: Any) -> Any:
        name = self._context.resolve_name(changes.name)
        fields = list(request.update_mask.paths) or [
            field.name for field, _ in changes.ListFields() if field.name in kind.changeable
        ]
        for field in fields:
            if field not in kind.changeable:
                raise invalid_argument("update_mask", f'"{field}" cannot be changed; {", ".join(kind.changeable)} can.')
        with self._database.lock:
            if request.allow_missing and not self._database.has_resource(name):
                parent, _, requested_id = name.rpartition(f"/{kind.collection}/")
                return self._create_node(kind, parent, changes, requested_id)
            with self._database.change(name) as node:
                validation.check_etag(changes, node)
                for field in fields:
                    models.copy_field_value(node, changes, field)
                _validate_node(node, kind)
        return self._database.get(name)

    def _delete_node(self, request: Any) -> Any:
        with self._database.lock:
            node = self._database.get(request.name)
            if request.etag and request.etag != node.etag:
                text = f"The etag {request.etag} does not match the server's, {node.etag}."
                raise ApiError("FAILED_PRECONDITION", text, "etag")
            self._forget_node(node.name)
        return self._context.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def _purge_nodes(self, kind: NodeKind, request: Any, metadata: Any, response: Callable[..., Any]) -> Any:
        self._database.get(request.parent)
        if not request.filter:
            raise invalid_argument("filter", "Required field is not set: filter.")
        matches = self._compile_filter(kind, request.filter)

        def purge() -> Any:
            with self._database.lock:
                names = [node.name for node in self._list_nodes(kind, request.parent) if matches(node)]
                for name in names if request.force else ():
                    self._forget_node(name)
            return response(purge_count=len(names), purge_sample=[] if request.force else names[:LARGEST_SAMPLE])

        return self._context.operations.done(request.parent, metadata, purge)

    def _forget_node(self, name: str) -> None:
        if _read_noun(name) == "context":
            self._detach_children(name, self._list_children(name))
        self._database.remove_all(name)

    def _list_page(self, kind: NodeKind, request: Any) -> tuple[list[Any], str]:
        self._database.get(request.parent)
        page_request = type(request)(
            page_size=request.page_size, page_token=request.page_token, order_by=request.order_by
        )
        matches = self._compile_filter(kind, request.filter)
        return self._database.list_page(f"{request.parent}/{kind.collection}", page_request, keep=matches)

    def _compile_filter(self, kind: NodeKind, text: str) -> Callable[[Any], bool]:
        """Compile a filter into a predicate; clauses about other nodes are resolved to sets of names first."""
        sets: list[set[str]] = []

        def rewrite(clause: re.Match[str]) -> str:
            if clause["field"]:
                return clause["field"]
            if clause["member"]:
                sets.append(self._list_members(self._unquote_name(clause["member"])))
            elif clause["relation"]:
                contexts = [self._unquote_name(quoted) for quoted in re.findall(QUOTED, clause["contexts"])]
                sets.append(set.intersection(*(self._find_relatives(clause["relation"], name) for name in contexts)))
            else:
                return clause[0]
            return f"{AMONG}.s{len(sets) - 1}=yes"

        fields = {**(listing.LISTS[f"{kind.collection.capitalize()}"].fields or {}), AMONG: listing.MEMBERSHIP}
        message = message_class(f"google.cloud.aiplatform.v1.{kind.noun.capitalize()}").DESCRIPTOR
        test = listing.compile_filter(CLAUSE.sub(rewrite, text), message, fields, self._database.resolve_name)

        def matches(node: Any) -> bool:
            return test(node, {AMONG: {f"s{number}": "yes" for number, names in enumerate(sets) if node.name in names}})

        return matches

    def _unquote_name(self, quoted: str) -> str:
        return self._context.resolve_name(quoted[1:-1])

    def _find_relatives(self, relation: str, name: str) -> set[str]:
        if relation == "parent_contexts":
            return {child.name for child in self._list_children(name)}
        return set(self._database.get(name).parent_contexts) if self._database.has_resource(name) else set()

    def _get_node(self, name: str) -> Any:
        return self._database.get(self._context.resolve_name(name))

    def _list_nodes(self, kind: NodeKind, store: str) -> list[Any]:
        nodes = self._database.list_all(f"google.cloud.aiplatform.v1.{kind.noun.capitalize()}")
        return [node for node in nodes if node.name.startswith(f"{store}/{kind.collection}/")]

    def _list_children(self, parent: str) -> list[Any]:
        contexts = self._list_nodes(CONTEXT, parent.rpartition("/contexts/")[0])
        return [context for context in contexts if parent in context.parent_contexts]

    def _detach_children(self, parent: str, children: Iterable[Any]) -> None:
        for child in children:
            with self._database.change(child.name, renews_etag=False) as stored:
                if parent in stored.parent_contexts:
                    stored.parent_contexts.remove(parent)

    def _find_ancestors(self, name: str) -> set[str]:
        """Return a context and all of its ancestors."""
        ancestors, frontier = {name}, [name]
        while frontier:
            parents = set(self._database.get(frontier.pop()).parent_contexts) - ancestors
            ancestors |= parents
            frontier += parents
        return ancestors

    def _list_members(self, context: str) -> set[str]:
        rows = self._database.run("SELECT target FROM links WHERE source = ?", (context,))
        return {target for (target,) in rows}

    def _list_events(self, name: str) -> list[Any]:
        """Return the events of an execution or an artifact."""
        rows = self._database.run(
            "SELECT content FROM links WHERE (source = ? OR target = ?) AND length(content) > 0", (name, name)
        )
        return [v1.Event.FromString(content) for (content,) in rows]

    def _build_subgraph(self, names: Iterable[str], events: Iterable[Any]) -> Any:
        nodes = [self._database.get(name) for name in sorted(set(names))]
        return v1.LineageSubgraph(
            artifacts=[node for node in nodes if _read_noun(node.name) == "artifact"],
            executions=[node for node in nodes if _read_noun(node.name) == "execution"],
            events=events,
        )


def _read_noun(name: str) -> str:
    return name.split("/")[-2].removesuffix("s")


def check_or_create_id(requested_id: str, at: str) -> str:
    """Return the requested id if it is valid, or a new one if none is requested."""
    if requested_id and not ID.fullmatch(requested_id):
        raise invalid_argument(at, f'"{requested_id}" is no id: 4 to 128 of a-z, 0-9 and - are.')
    return requested_id or str(uuid.uuid4())


def _validate_node(node: Any, kind: NodeKind) -> None:
    """Validate labels, name and size of the metadata, and strip spaces around its keys."""
    common = type(node)(display_name=node.display_name or "-", labels=node.labels)
    validation.check_name_and_labels(common, kind.noun)
    values = node.metadata.fields
    for key in [key for key in values if key != key.strip()]:
        values[key.strip()].CopyFrom(values[key])
        del values[key]
    if (size := node.metadata.ByteSize()) > LARGEST_METADATA:
        text = f"The metadata has {size:,} bytes; the most is {LARGEST_METADATA:,}."
        raise invalid_argument(f"{kind.noun}.metadata", text)
