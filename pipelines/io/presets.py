"""Infrastructures ready to use, by name, as `presets.yaml` beside this file has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict
from circinus.pipelines.model.infrastructure import Infrastructure

_TEXT = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
PRESETS: Mapping[str, Infrastructure] = MappingProxyType(
    {each.name: each for each in map(infrastructure_from_dict, yaml.safe_load_all(_TEXT))}
)
"""`local` (the default; this computer, slower tiers and links emulated by waiting), `one-tier`,
`three-tier`, `four-tier` to begin with, and the set-ups of Circinus 6.1 and A.2: `paper-small`,
`paper-large`, `paper-one-tier`, `paper-four-tier`."""
