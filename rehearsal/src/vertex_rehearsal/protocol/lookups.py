"""Generic handlers of Get and List methods that only look resources up."""

from collections.abc import Callable
from typing import Any

from vertex_rehearsal.api.messages import message_class
from vertex_rehearsal.api.methods import RpcMethod
from vertex_rehearsal.context import Context
from vertex_rehearsal.training.validation import PARENT, check_parent


def is_lookup(service: type, name: str) -> bool:
    """Whether a method is a Get or List of a resource in the service's LOOKUPS (resource: default page size)."""
    return any(name in (f"Get{kind}", *_list_names(kind)) for kind in getattr(service, "LOOKUPS", ()))


def create_handler(service: type, method: RpcMethod, context: Context) -> Callable[[Any], Any]:
    """Create the handler of a lookup method."""
    if method.name.startswith("Get"):
        return lambda request: context.database.get(request.name)
    sizes = {name: size for kind, size in getattr(service, "LOOKUPS", {}).items() for name in _list_names(kind)}
    return lambda request: list_resources(context, method, request, default_size=sizes[method.name])


def list_resources(context: Context, method: RpcMethod, request: Any, *, default_size: int) -> Any:
    """Return a page of a collection, newest first; its name is the last part of the method's HTTP path."""
    if PARENT.fullmatch(request.parent) or "/locations/" not in request.parent.rpartition("/")[0]:
        check_parent(request.parent)
    else:  # nested in another resource
        context.database.get(request.parent)
    collection = method.rules[0].uri.rpartition("/")[2]
    page, token = context.database.list_page(f"{request.parent}/{collection}", request, default_size=default_size)
    response = message_class(method.response)(next_page_token=token)
    [field] = [field.name for field in response.DESCRIPTOR.fields if field.message_type is not None]
    getattr(response, field).extend(page)
    return response


def _list_names(kind: str) -> tuple[str, str]:
    return f"List{kind}s", f"List{kind}"
