"""The API of models: uploaded, versioned, copied, updated and deleted."""

import json
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument, not_found_error
from vertex_rehearsal.api.messages import protobuf, v1
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.prediction.deployments import Deployments
from vertex_rehearsal.prediction.evaluations import delete_evaluations
from vertex_rehearsal.prediction.models import (
    DEFAULT,
    INPUTS,
    KIND,
    QUICK_S,
    bucket_of,
    check_mask,
    copy_field_value,
    find_version,
    get_model_name,
    get_storage_uri,
    list_versions,
    parse_name,
)
from vertex_rehearsal.training import validation

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

ALIAS = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]")
ID = re.compile(r"[a-z0-9_][a-z0-9_-]{0,62}")
CHANGEABLE = ("display_name", "description", "labels", "version_description")
VERSION_FIELDS = ("version_description",)
"""Fields that belong to one version; the others belong to the model."""


class Models:
    """The RPCs of google.cloud.aiplatform.v1.ModelService about models and their versions."""

    LIMITS = {  # noqa: RUF012
        "UploadModel": "Models of one's own containers; explanations, probes, gRPC ports and encryption have no "
        "effect, and service accounts neither.",
    }

    def __init__(self, context: "Context", deployments: Deployments) -> None:
        self._context = context
        self._deployments = deployments
        self._lock = threading.RLock()

    def resume(self) -> None:
        """Delete the files of uploads that never finished."""
        known = {self._get_directory(model) for model in self._context.database.list_all(KIND)}
        for (project,) in self._context.database.run("SELECT id FROM projects"):
            for directory in self._context.resolve_uri(f"gs://{bucket_of(self._context, project)}").glob("*/*"):
                if directory.is_dir() and directory not in known:
                    shutil.rmtree(directory)

    def upload_model(self, request: Any) -> Any:
        """Validate a model as Vertex AI does, copy its files and store it."""
        model = self._build_model(request)

        def run_upload() -> Any:
            stored = self._store_version(request, model)
            return v1.UploadModelResponse(model=stored.name, model_version_id=stored.version_id)

        operations = self._context.operations
        operation = operations.start_operation(
            self._choose_name(request), v1.UploadModelOperationMetadata(), run_upload
        )
        return operations.wait_for(operation.name, QUICK_S)

    def copy_model(self, request: Any) -> Any:
        """Copy a model version with its files to a region, as a new model or as a version of another one."""
        if not request.source_model:
            raise invalid_argument("source_model", "Required field is not set: source_model.")
        source = find_version(self._context, request.source_model, "source_model")
        project, _ = validation.check_parent(request.parent)
        if source.name.split("/")[1] != project:
            text = f"The model {source.name} is in another project than {request.parent}."
            raise invalid_argument("source_model", text)
        validation.check_account(
            request.custom_service_account, self._context.project.load_current(), "custom_service_account"
        )
        upload = v1.UploadModelRequest(
            parent=request.parent, model_id=request.model_id, parent_model=request.parent_model, model=source
        )
        upload.model.ClearField("version_aliases")
        upload.model.ClearField("encryption_spec")
        if request.HasField("encryption_spec"):
            upload.model.encryption_spec.CopyFrom(request.encryption_spec)
        upload.model.original_model_info.model = get_model_name(source)
        upload.model.model_source_info.copy = True
        upload.model.artifact_uri = get_storage_uri(self._context, source)  # the original files may be gone
        model = self._build_model(upload)

        def run_copy() -> Any:
            stored = self._store_version(upload, model, artifact_uri=source.artifact_uri)
            return v1.CopyModelResponse(model=stored.name, model_version_id=stored.version_id)

        operations = self._context.operations
        operation = operations.start_operation(self._choose_name(upload), v1.CopyModelOperationMetadata(), run_copy)
        return operations.wait_for(operation.name, QUICK_S)

    def get_model(self, request: Any) -> Any:
        """Return a version of a model; the default version unless another is named."""
        return self._to_public_model(find_version(self._context, request.name))

    def list_models(self, request: Any) -> Any:
        """Return a page of models in their default versions, newest first."""
        validation.check_parent(request.parent)
        page, token = self._context.database.list_page(
            f"{request.parent}/models", request, keep=lambda model: DEFAULT in model.version_aliases
        )
        return v1.ListModelsResponse(models=map(self._to_public_model, page), next_page_token=token)

    def list_model_versions(self, request: Any) -> Any:
        """Return a page of a model's versions, newest first."""
        plain = get_model_name(find_version(self._context, request.name))
        page, token = self._context.database.list_page(
            plain.rpartition("/")[0], request, keep=lambda model: get_model_name(model) == plain
        )
        return v1.ListModelVersionsResponse(models=map(self._to_public_model, page), next_page_token=token)

    def update_model(self, request: Any) -> Any:
        """Update the fields in the update mask."""
        changes = request.model
        version = find_version(self._context, changes.name, "model.name")
        fields = check_mask(changes, request.update_mask, "model", CHANGEABLE)
        with self._context.database.lock:
            validation.check_etag(changes, self._context.database.get(version.name))
            for each in list_versions(self._context, get_model_name(version)):
                with self._context.database.change(each.name) as stored:
                    for field in fields:
                        if each.name == version.name or field not in VERSION_FIELDS:
                            copy_field_value(stored, changes, field)
                    if each.name == version.name:
                        stored.version_update_time.GetCurrentTime()
        return self._to_public_model(self._context.database.get(version.name))

    def merge_version_aliases(self, request: Any) -> Any:
        """Move aliases to a version and remove those with a leading minus."""
        with self._lock:
            version = find_version(self._context, request.name)
            if not request.version_aliases:
                raise invalid_argument("version_aliases", "Required field is not set: version_aliases.")
            added = [alias for alias in request.version_aliases if not alias.startswith("-")]
            removed = {alias[1:] for alias in request.version_aliases if alias.startswith("-")}
            _check_aliases(added, "version_aliases")
            if DEFAULT in removed:
                raise invalid_argument(
                    "version_aliases", f'The alias "{DEFAULT}" can be given to another version, not removed.'
                )
            self._take_aliases(get_model_name(version), set(added))
            with self._context.database.change(version.name) as stored:
                aliases = [*stored.version_aliases, *(alias for alias in added if alias not in stored.version_aliases)]
                stored.version_aliases[:] = [alias for alias in aliases if alias not in removed]
                stored.version_update_time.GetCurrentTime()
        return self._to_public_model(self._context.database.get(version.name))

    def delete_model(self, request: Any) -> Any:
        """Delete a model with all of its versions and their files, unless one is deployed."""
        plain, version = parse_name(self._context, request.name)
        if version:
            raise invalid_argument("name", f'"{request.name}" names a version: DeleteModelVersion deletes one.')
        with self._lock:
            versions = list_versions(self._context, plain)
            if not versions:
                raise not_found_error(request.name)
            for model in versions:
                self._check_undeployed(model)
            for model in versions:
                self._delete_version(model)
        return self._context.operations.done(plain, v1.DeleteOperationMetadata(), protobuf.Empty)

    def delete_model_version(self, request: Any) -> Any:
        """Delete a version that is neither deployed, nor the default, nor the only one."""
        plain, version = parse_name(self._context, request.name)
        if not version:
            raise invalid_argument("name", f'"{request.name}" names no version: MODEL@VERSION is expected.')
        with self._lock:
            model = find_version(self._context, request.name)
            if len(list_versions(self._context, plain)) == 1:
                message = f"The only version of the model {plain} cannot be deleted: DeleteModel deletes the model."
                raise ApiError("FAILED_PRECONDITION", message)
            if DEFAULT in model.version_aliases:
                raise ApiError(
                    "FAILED_PRECONDITION",
                    f"The version {model.version_id} is the default of the model {plain} and cannot be deleted: "
                    f'give the alias "{DEFAULT}" to another first.',
                )
            self._check_undeployed(model)
            self._delete_version(model)
        metadata = v1.DeleteOperationMetadata()
        return self._context.operations.done(plain, metadata, protobuf.Empty)

    def _choose_name(self, request: Any) -> str:
        """Return the name of the model that a request will create; its operation needs it in advance."""
        if request.parent_model:
            return parse_name(self._context, request.parent_model, "parent_model")[0]
        request.model_id = request.model_id or new_id()
        return f"{request.parent}/models/{request.model_id}"

    def _build_model(self, request: Any) -> Any:
        """Build a new model version from a request and validate it as Vertex AI does."""
        validation.check_parent(request.parent)
        model = v1.Model()
        model.CopyFrom(request.model)
        for field in (
            "name",
            "version_id",
            "version_create_time",
            "version_update_time",
            "create_time",
            "update_time",
            "deployed_models",
            "supported_deployment_resources_types",
            "supported_input_storage_formats",
            "supported_output_storage_formats",
        ):
            model.ClearField(field)
        if request.parent_model:
            parent = find_version(self._context, request.parent_model, "parent_model")
            if request.model_id:
                raise invalid_argument("model_id", "model_id and parent_model cannot both be set.")
            if not model.display_name:
                model.display_name = parent.display_name
        elif request.model_id:
            if not ID.fullmatch(request.model_id):
                text = f'"{request.model_id}" is no model id: at most 63 of a-z, 0-9, _ and -, the first no -.'
                raise invalid_argument("model_id", text)
            if list_versions(self._context, f"{request.parent}/models/{request.model_id}"):
                name = f"{request.parent}/models/{request.model_id}"
                raise ApiError("ALREADY_EXISTS", f"The resource '{name}' already exists.")
        validation.check_name_and_labels(model, "model")
        _check_aliases(model.version_aliases, "model.version_aliases")
        _check_container(model)
        self._check_files(model)
        return model

    def _check_files(self, model: Any) -> None:
        at = "model.artifact_uri"
        validation.check_output(model.artifact_uri, at)
        if model.artifact_uri:
            directory = self._context.resolve_uri(model.artifact_uri, at)
            if not directory.is_dir() or not any(path.is_file() for path in directory.rglob("*")):
                raise invalid_argument(
                    at, f"The model directory {model.artifact_uri} is expected to exist and has no files."
                )

    def _store_version(self, request: Any, model: Any, *, artifact_uri: str = "") -> Any:
        """Copy a model's files and store it as a new version; return it as clients see it.

        `artifact_uri` is the reported origin of its files, where it differs from the directory that is copied.
        """
        with self._lock:
            plain = self._choose_name(request)
            earlier = list_versions(self._context, plain)
            model.version_id = str(1 + max((int(each.version_id) for each in earlier), default=0))
            model.name = f"{plain}@{model.version_id}"
            self._copy_files(model)
            model.artifact_uri = artifact_uri or model.artifact_uri
            model.version_create_time.GetCurrentTime()
            model.version_update_time.CopyFrom(model.version_create_time)
            model.update_time.CopyFrom(model.version_create_time)
            model.create_time.CopyFrom(earlier[0].create_time if earlier else model.version_create_time)
            if not earlier and DEFAULT not in model.version_aliases:
                model.version_aliases.insert(0, DEFAULT)
            model.supported_deployment_resources_types.append(v1.Model.DEDICATED_RESOURCES)
            model.supported_input_storage_formats.extend(INPUTS)
            model.supported_output_storage_formats.append("jsonl")
            self._take_aliases(plain, set(model.version_aliases))
            self._context.database.add(model)
        return self._to_public_model(model)

    def _copy_files(self, model: Any) -> None:
        uri = get_storage_uri(self._context, model)
        if not uri:
            return
        _make_bucket(self._context, model.name.split("/")[1])
        target = self._context.resolve_uri(uri)
        shutil.rmtree(target, ignore_errors=True)
        try:
            shutil.copytree(self._context.resolve_uri(model.artifact_uri), target)
        except (OSError, shutil.Error) as error:
            shutil.rmtree(target, ignore_errors=True)
            raise ApiError("INTERNAL", f"{model.artifact_uri} cannot be copied: {error}") from error

    def _take_aliases(self, plain: str, aliases: set[str]) -> None:
        """Remove aliases from the versions that have them, since an alias names one version."""
        for each in list_versions(self._context, plain):
            if aliases & set(each.version_aliases):
                with self._context.database.change(each.name) as stored:
                    stored.version_aliases[:] = [alias for alias in stored.version_aliases if alias not in aliases]

    def _to_public_model(self, model: Any) -> Any:
        """Return a stored version as clients see it: with its model's name and its deployed models."""
        public = v1.Model()
        public.CopyFrom(model)
        public.name = get_model_name(model)
        for endpoint, deployed in self._list_deployments(model):
            public.deployed_models.add(endpoint=endpoint, deployed_model_id=deployed.id)
        return public

    def _list_deployments(self, model: Any) -> list[tuple[str, Any]]:
        return [
            (endpoint.name, deployed)
            for endpoint in self._context.database.list_all(v1.Endpoint.DESCRIPTOR.full_name)
            for deployed in endpoint.deployed_models
            if f"{deployed.model}@{deployed.model_version_id}" == model.name
        ]

    def _check_undeployed(self, model: Any) -> None:
        places = [endpoint for endpoint, _ in self._list_deployments(model)] + self._deployments.list_holders(
            model.name
        )
        if places:
            raise ApiError(
                "FAILED_PRECONDITION",
                f"The model {model.name} is deployed or being deployed at: {', '.join(dict.fromkeys(places))}. "
                "Undeploy it first.",
            )

    def _delete_version(self, model: Any) -> None:
        self._context.database.remove(model.name)
        delete_evaluations(self._context, model)
        files = self._get_directory(model)
        if files is not None:
            shutil.rmtree(files, ignore_errors=True)

    def _get_directory(self, model: Any) -> Path | None:
        uri = get_storage_uri(self._context, model)
        return self._context.resolve_uri(uri) if uri else None


def import_model(models: Models, request: Any) -> Any:
    """Validate and store the model of an UploadModelRequest at once, without an operation."""
    return models._store_version(request, models._build_model(request))


def _check_aliases(aliases: Sequence[str], at: str) -> None:
    for alias in aliases:
        if not ALIAS.fullmatch(alias):
            raise invalid_argument(at, f'"{alias}" is no version alias: {ALIAS.pattern} is expected.')


def _check_container(model: Any) -> None:
    spec, at = model.container_spec, "model.container_spec"
    if not model.HasField("container_spec"):
        raise invalid_argument(at, "Required field is not set: container_spec.")
    validation.check_image(spec.image_uri, f"{at}.image_uri")
    validation.check_arguments(spec, at)
    for port in spec.ports:
        if not 0 < port.container_port < 65536:
            raise invalid_argument(f"{at}.ports", f"{port.container_port} is no port.")
    for field in ("predict_route", "health_route"):
        route = getattr(spec, field)
        if route and not re.fullmatch(r"/[!-~]*", route):
            raise invalid_argument(f"{at}.{field}", f'"{route}" is no path of HTTP: it should begin with /.')


def _make_bucket(context: "Context", project: str) -> None:
    """Create the bucket for model files through the emulator's Cloud Storage, so that every client can read it."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {context.settings.token}"}
    body = json.dumps({"name": bucket_of(context, project)}).encode()
    request = urllib.request.Request(f"{context.address}/storage/v1/b?project={project}", body, headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60):  # noqa: S310
            pass
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it exists
            raise ApiError("INTERNAL", f"The bucket of models cannot be made: {error}") from error
