"""`tagline info`: print versions and devices, for a bug report."""

from tagline.cli.options import Debug, Json


def info(json: Json = False, debug: Debug = False) -> None:
    """Say which versions, devices, families and places there are, for a bug report."""
    from tagline.cli import console
    from tagline.commands.info import info as describe

    facts = describe()
    if json:
        console.out_json(facts)
        return
    for name, value in facts.items():
        if name == "versions":
            for package, version in value.items():
                console.out(f"{package:<16}{version}")
        elif name == "cannot_train":
            for command in dict.fromkeys(lacking["install"] for lacking in value.values()):
                families = [family for family, lacking in value.items() if lacking["install"] == command]
                console.out(f"{name:<16}{', '.join(families)}: {command}")
        else:
            console.out(f"{name:<16}{', '.join(value) if isinstance(value, list) else value}")
