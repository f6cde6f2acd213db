"""How to configure each client to use the emulator instead of the cloud."""

import sys
from collections.abc import Mapping
from urllib.parse import quote

from vertex_rehearsal.access import build_keyed_address

PROJECT, REGION = "demo", "us-central1"


def build_client_setup(
    *, http_port: int, grpc_port: int, token: str = "", token_file: str = "", ca: str = "", roots: str = ""
) -> Mapping[str, str]:
    """Return the configuration for each client."""
    address, grpc_address = f"http://localhost:{http_port}", f"localhost:{grpc_port}"
    with_key = build_keyed_address(address, token)
    credentials = f'google.oauth2.credentials.Credentials("{token}")' if token else "AnonymousCredentials()"
    endpoint = f'client_options={{"api_endpoint": "{address}"}}'
    header = f"-H 'Authorization: Bearer {token}' " if token else ""
    init = f'aiplatform.init(project="{PROJECT}", location="{REGION}", credentials={credentials}, api_endpoint='
    channel = f'JobServiceClient(transport=JobServiceGrpcTransport(channel=grpc.insecure_channel("{grpc_address}")))'
    each_call = f', and metadata=[("authorization", "Bearer {token}")] with each call' if token else ""
    over_grpc = f'GRPC_DEFAULT_SSL_ROOTS_FILE_PATH={ca}, and {init}"{grpc_address}")' if ca else f"{channel}{each_call}"
    # Only Linux reveals the user of the connecting process; elsewhere the address must contain the token.
    metadata_host = (address if sys.platform == "linux" else with_key).removeprefix("http://")
    metadata = f"GCE_METADATA_HOST={metadata_host} GCE_METADATA_IP=localhost:{http_port}"
    signed_in = (
        f"CLOUDSDK_AUTH_ACCESS_TOKEN_FILE={token_file}" if token_file else "CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true"
    )
    return {
        "a browser": f"{address}/{f'#token?value={quote(token)}' if token else ''}",
        "default credentials, for any client": metadata,
        "google-cloud-aiplatform": f'{init}"{address}", api_transport="rest")',
        # Otherwise it calls Google for a minute before it submits a pipeline and for a project's id.
        "google-cloud-aiplatform, PipelineJob.submit and projects": (
            f"grpc_proxy={address} no_grpc_proxy=localhost,127.0.0.1 GRPC_DEFAULT_SSL_ROOTS_FILE_PATH={roots}"
        ),
        "google-cloud-aiplatform, aiplatform_v1": (
            f'JobServiceClient(credentials={credentials}, transport="rest", {endpoint})'
        ),
        "google-cloud-aiplatform, gRPC": over_grpc,
        "google-cloud-storage": f"STORAGE_EMULATOR_HOST={with_key}",
        # Otherwise it looks up the bucket's type over gRPC with TLS, for a minute each time.
        "gcsfs, pandas, fsspec": f"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT=false STORAGE_EMULATOR_HOST={with_key}",
        "google-cloud-logging": (
            f'logging.Client(project="{PROJECT}", credentials={credentials}, {endpoint}, _use_grpc=False)'
        ),
        "Node, @google-cloud/storage": f'new Storage({{projectId: "{PROJECT}", apiEndpoint: "{with_key}"}})',
        "Node, @google-cloud/aiplatform": (
            f"{metadata}, and new JobServiceClient("
            f'{{fallback: true, protocol: "http", apiEndpoint: "localhost", port: {http_port}}})'
        ),
        "gcloud": (
            f"{signed_in} CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM={address}/"
            f" CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE={address}/storage/v1/"
            f" CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING={address}/"
        ),
        "curl": f"curl {header}{address}/v1/projects/{PROJECT}/locations/{REGION}/customJobs",
    }
