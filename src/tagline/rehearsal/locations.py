"""The regions of a project, which every Google API can be asked for."""

from typing import TYPE_CHECKING, Any

from tagline.gcp.machines import REGIONS
from tagline.rehearsal.messages import location
from tagline.rehearsal.problems import not_found

if TYPE_CHECKING:
    from tagline.rehearsal.stage import Stage


class Locations:
    """The RPCs of google.cloud.location.Locations."""

    def __init__(self, _: "Stage") -> None:
        pass

    def list_locations(self, request: Any) -> Any:
        """Every region."""
        locations = [_location(f"{request.name}/locations/{region}") for region in sorted(REGIONS)]
        return location.ListLocationsResponse(locations=locations)

    def get_location(self, request: Any) -> Any:
        """One region."""
        if request.name.rpartition("/")[2] not in REGIONS:
            raise not_found(request.name)
        return _location(request.name)


def _location(name: str) -> Any:
    return location.Location(name=name, location_id=name.rpartition("/")[2])
