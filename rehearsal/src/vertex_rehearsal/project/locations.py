"""The regions of a project, which every Google API can be asked for."""

from typing import Any

from vertex_rehearsal.api.errors import not_found_error
from vertex_rehearsal.api.messages import location
from vertex_rehearsal.machines import REGIONS


class Locations:
    """The RPCs of google.cloud.location.Locations."""

    def list_locations(self, request: Any) -> Any:
        """Every region."""
        locations = [_create_location(f"{request.name}/locations/{region}") for region in sorted(REGIONS)]
        return location.ListLocationsResponse(locations=locations)

    def get_location(self, request: Any) -> Any:
        """One region."""
        if request.name.rpartition("/")[2] not in REGIONS:
            raise not_found_error(request.name)
        return _create_location(request.name)


def _create_location(name: str) -> Any:
    return location.Location(name=name, location_id=name.rpartition("/")[2])
