"""A pytest plugin for runs that only ask whether something fails: fixed examples, no search for the smallest one."""

from __future__ import annotations

from hypothesis import Phase, settings


def pytest_configure() -> None:
    """Load the profile after the conftest files have loaded theirs."""
    settings.register_profile(
        "no_shrink", settings.get_profile("ci"), database=None, phases=[Phase.explicit, Phase.generate]
    )
    settings.load_profile("no_shrink")
