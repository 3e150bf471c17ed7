"""What --vary and -D ask of a source: each value of each parameter alone, and which values it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kernels_sass.conv.parameters import Parameter
from loader.bench import results
from turingas.errors import LaunchError

OWN = "as it is"
REFUSED = "refused: "  # how the status begins of what cannot be: with these sizes, or other values


def label(name: str, value: object) -> str:
    """How a row is called."""
    return f"{name}={value}"


def alone(vary: Mapping[str, Sequence[object]]) -> dict[str, dict[str, object]]:
    """By their rows: the source as it is, and each value of each parameter."""
    return {OWN: {}, **{label(name, value): {name: value} for name, values in vary.items() for value in values}}


def apart(given: Mapping[str, object], vary: Mapping[str, object]) -> None:
    """LaunchError for a parameter that is to vary, and not to vary."""
    if both := [name for name in vary if name in given]:
        raise LaunchError(f"{both[0]} is given by -D and by --vary", "-D is for what does not vary")


def known(
    file: str, there: Mapping[str, Parameter], fixed: Mapping[str, str], given: Mapping[str, Sequence[object]]
) -> dict[str, tuple[object, ...]]:
    """Values as a source's ``file`` has them, each once. LaunchError for a parameter that it does not have, a value
    that it does not list, and what is ``fixed``, by what."""
    able, found = [name for name in there if name not in fixed], {}
    for name, values in given.items():
        if name not in there:
            raise LaunchError(f"{file} has no parameter {name!r}", "it has: " + ", ".join(able))
        if name in fixed:
            raise LaunchError(f"{file}: {name} cannot be chosen here", f"{fixed[name]}; what can: {', '.join(able)}")
        has = {str(one): one for one in there[name].values}
        if has and (wrong := [value for value in values if str(value) not in has]):
            raise LaunchError(f"{file} does not take {label(name, wrong[0])}", "it takes: " + ", ".join(has))
        found[name] = tuple(dict.fromkeys(has.get(str(value), value) for value in values))
    return found


def refused(row: results.Json) -> bool:
    """Whether it is of a value that cannot be: no failure. What every layer takes must be."""
    return row["name"] != OWN and str(row["status"]).startswith(REFUSED)


def impossible(found: results.Json) -> Iterator[str]:
    """Values that were refused, why, and with which settings."""
    made: dict[str, list[str]] = {}
    for setting, entry in found["settings"].items():
        for row in filter(refused, entry["rows"]):
            made.setdefault(f"{row['name']}: {row['status']}", []).append(setting)
    yield from (f"{what}: {', '.join(settings)}" for what, settings in made.items())
