"""Bucket locations: regions, multi-regions and dual-regions, as Google's page "Bucket locations" lists them."""

from collections.abc import Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import errors

REGIONS = frozenset({
    "AFRICA-SOUTH1", "ASIA-EAST1", "ASIA-EAST2", "ASIA-NORTHEAST1", "ASIA-NORTHEAST2", "ASIA-NORTHEAST3", "ASIA-SOUTH1",
    "ASIA-SOUTH2", "ASIA-SOUTHEAST1", "ASIA-SOUTHEAST2", "ASIA-SOUTHEAST3", "AUSTRALIA-SOUTHEAST1",
    "AUSTRALIA-SOUTHEAST2", "EUROPE-CENTRAL2", "EUROPE-NORTH1", "EUROPE-NORTH2", "EUROPE-SOUTHWEST1", "EUROPE-WEST1",
    "EUROPE-WEST2", "EUROPE-WEST3", "EUROPE-WEST4", "EUROPE-WEST6", "EUROPE-WEST8", "EUROPE-WEST9", "EUROPE-WEST10",
    "EUROPE-WEST12", "ME-CENTRAL1", "ME-CENTRAL2", "ME-WEST1", "NORTHAMERICA-NORTHEAST1", "NORTHAMERICA-NORTHEAST2",
    "NORTHAMERICA-SOUTH1", "SOUTHAMERICA-EAST1", "SOUTHAMERICA-WEST1", "US-CENTRAL1", "US-EAST1", "US-EAST4",
    "US-EAST5", "US-SOUTH1", "US-WEST1", "US-WEST2", "US-WEST3", "US-WEST4",
})  # fmt: skip
MULTI_REGIONS = frozenset({"ASIA", "EU", "US"})
DUAL_REGIONS = frozenset({"ASIA1", "EUR4", "EUR5", "EUR7", "EUR8", "NAM4"})
DEFAULT = "US"
_CONTINENTS = {
    "US": ("US-",), "EU": ("EUROPE-",), "ASIA": ("ASIA-",), "AU": ("AUSTRALIA-",),
    "CA": ("NORTHAMERICA-",), "IN": ("ASIA-SOUTH1", "ASIA-SOUTH2"),
}  # fmt: skip
"""Prefixes of the regions that a configurable dual-region may combine, by its location."""


def parse_location(value: Any) -> str:
    """Return a valid location in upper case, or refuse it."""
    if isinstance(value, str) and value.upper() in REGIONS | MULTI_REGIONS | DUAL_REGIONS:
        return value.upper()
    raise _location_error()


def parse_regions(location: Any, placement: Any) -> tuple[str, list[str]]:
    """Return the location and the two regions of a configurable dual-region, or refuse them."""
    regions = placement.get("dataLocations") if isinstance(placement, Mapping) else None
    if not isinstance(regions, list) or len(regions) != 2 or not all(isinstance(region, str) for region in regions):
        message = "Invalid value for 'customPlacementConfig': dataLocations names two regions."
        raise errors.invalid_request(message, location="customPlacementConfig")
    chosen = sorted(region.upper() for region in regions)
    parent = str(location or DEFAULT).upper()
    if parent not in _CONTINENTS or not set(chosen) <= REGIONS or chosen[0] == chosen[1]:
        raise _location_error()
    if not all(region.startswith(_CONTINENTS[parent]) for region in chosen):
        raise _location_error()
    return parent, chosen


def get_location_type(settings: Mapping[str, Any]) -> str:
    """Return the type of a bucket's location: region, dual-region or multi-region."""
    location = settings["location"]
    if settings.get("customPlacementConfig") or location in DUAL_REGIONS:
        return "dual-region"
    return "multi-region" if location in MULTI_REGIONS else "region"


def _location_error() -> errors.StorageError:
    message = "The specified location constraint is not valid."
    return errors.invalid_request(message, location="location", code="InvalidLocationConstraint")
