"""The Locations service, which lists a project's regions."""

from typing import Any

from vertex_rehearsal import listing
from vertex_rehearsal.api.errors import invalid_argument, not_found_error
from vertex_rehearsal.api.messages import location
from vertex_rehearsal.machines import REGIONS


class Locations:
    """The RPCs of google.cloud.location.Locations."""

    def list_locations(self, request: Any) -> Any:
        """Return a page of the regions, sorted by name."""
        if request.page_size < 0:
            raise invalid_argument("page_size", f"page_size must not be negative: {request.page_size}")
        if request.page_token and request.page_token not in REGIONS:
            raise invalid_argument("page_token", "The page token is invalid.")
        query = listing.compile_query(request, lambda name: name)
        known = [_create_location(f"{request.name}/locations/{region}") for region in sorted(REGIONS)]
        remaining = [each for each in known if each.location_id > request.page_token and query.passes(each, {})]
        size = request.page_size or len(REGIONS)
        token = remaining[size - 1].location_id if len(remaining) > size else ""
        return location.ListLocationsResponse(locations=remaining[:size], next_page_token=token)

    def get_location(self, request: Any) -> Any:
        """Return a region."""
        if request.name.rpartition("/")[2] not in REGIONS:
            raise not_found_error(request.name)
        return _create_location(request.name)


def _create_location(name: str) -> Any:
    return location.Location(name=name, location_id=name.rpartition("/")[2])
