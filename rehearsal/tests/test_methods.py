"""The RPC table, which is read from private parts of Google's libraries: this says when they have changed."""

from pathlib import Path

import pytest

from vertex_rehearsal.api import methods
from vertex_rehearsal.api.messages import message_class, v1
from vertex_rehearsal.api.methods import HttpRule, load_methods
from vertex_rehearsal.protocol import registry
from vertex_rehearsal.protocol.lookups import is_lookup

VERTEX = "google.cloud.aiplatform.v1"
WITHOUT_HTTP = {
    "FeatureViewDirectWrite", "StreamDirectPredict", "StreamDirectRawPredict", "StreamingPredict",
    "StreamingRawPredict",
}  # fmt: skip
NOT_RPCS = {"resume", "close", "start_operation", "done", "wait_for", "give_up"}


def test_every_method_of_vertex_is_known_with_its_messages() -> None:
    vertex = [method for method in load_methods().values() if method.service.startswith(VERTEX)]
    assert len(vertex) == 345
    assert len({method.service for method in vertex}) == 34
    assert {method.name for method in vertex if not method.rules} == WITHOUT_HTTP
    for method in load_methods().values():
        assert message_class(method.request).DESCRIPTOR.full_name == method.request
        assert message_class(method.response).DESCRIPTOR.full_name == method.response


def test_a_method_is_as_google_documents_it() -> None:
    method = load_methods()[f"/{VERTEX}.JobService/CreateCustomJob"]
    assert method.request == f"{VERTEX}.CreateCustomJobRequest"
    assert method.response == f"{VERTEX}.CustomJob"
    assert method.rules == (HttpRule("POST", "/v1/{parent=projects/*/locations/*}/customJobs", "custom_job"),)
    assert method.kind == "unary_unary"
    tail = load_methods()["/google.logging.v2.LoggingServiceV2/TailLogEntries"]
    assert tail.kind == "stream_stream"
    operation = load_methods()["/google.longrunning.Operations/GetOperation"]
    assert HttpRule("GET", "/ui/{name=projects/*/locations/*/operations/*}") in operation.rules
    assert HttpRule("GET", "/v1/{name=projects/*/locations/*/operations/*}") in operation.rules


def test_the_kept_table_is_the_one_that_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read = methods.load_methods.__wrapped__()
    (kept,) = tmp_path.rglob("*.json")
    assert "2.6.0" in kept.name
    assert methods.load_methods.__wrapped__() == read
    kept.write_text(kept.read_text()[:1000])
    assert methods.load_methods.__wrapped__() == read, "a damaged table is read anew"
    assert len(kept.read_text()) > 100_000
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [kept.name]


def test_a_home_that_cannot_be_written_to_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(methods.load_methods.__wrapped__()) == len(load_methods())


def test_messages_and_enumerations_go_by_their_short_names() -> None:
    load_methods()
    assert v1.CustomJob(display_name="x").display_name == "x"
    assert message_class("google.rpc.BadRequest")().field_violations == []
    assert v1.JobState.Name(v1.JobState.JOB_STATE_QUEUED) == "JOB_STATE_QUEUED"
    with pytest.raises(AttributeError, match="has no Nonsense"):
        _ = v1.Nonsense


def test_every_public_method_of_a_part_plays_an_rpc_of_its_service() -> None:
    known: dict[str, set[str]] = {}
    for method in load_methods().values():
        known.setdefault(method.service, set()).add(registry.to_snake_case(method.name))
    for service, part in registry.PARTS:
        player = registry.load_service(part)
        own = {name for name, value in vars(player).items() if callable(value) and not name.startswith("_")}
        assert own - NOT_RPCS <= known[service], part
        for limited in getattr(player, "LIMITS", {}):
            assert registry.to_snake_case(limited) in own or is_lookup(player, limited), limited


def test_the_programme_says_what_is_played() -> None:
    programme = registry.build_method_table()
    assert programme[f"/{VERTEX}.JobService/GetCustomJob"].extent == "played"
    assert programme[f"/{VERTEX}.JobService/CreateCustomJob"].extent == "partly"
    assert programme[f"/{VERTEX}.JobService/CreateNasJob"].extent == "not"


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("CreateCustomJob", "create_custom_job"),
        ("ListIAMPolicies", "list_iam_policies"),
        ("GetV2Thing", "get_v2_thing"),
    ],
)
def test_names(name: str, snake: str) -> None:
    assert registry.to_snake_case(name) == snake


def test_what_is_played_is_the_same_in_v1beta1() -> None:
    """So that its clients can be answered by v1's handlers: what both have is written alike."""
    from google.cloud import aiplatform_v1, aiplatform_v1beta1
    from google.protobuf import descriptor_pool

    assert aiplatform_v1.__name__  # describes its messages
    assert aiplatform_v1beta1.__name__
    seen = set()

    def compare(name: str) -> None:
        if not name.startswith(f"{VERTEX}.") or name in seen:
            return
        seen.add(name)
        ours = descriptor_pool.Default().FindMessageTypeByName(name)
        theirs = descriptor_pool.Default().FindMessageTypeByName(name.replace(".v1.", ".v1beta1."))
        for field in ours.fields:
            other = theirs.fields_by_name.get(field.name)
            if other is None:
                continue
            assert (field.number, field.type) == (other.number, other.type), f"{name}.{field.name}"
            if field.message_type is not None:
                compare(field.message_type.full_name)

    for known in registry.build_method_table().values():
        if known.part:
            compare(known.method.request)
            compare(known.method.response)
    assert len(seen) > 100
