"""What may vary: one YAML file per kernel family, loaded, checked and enumerated."""

from kt.search_spaces.space import Config, Constraint, Launch, LaunchRule, SearchSpace

__all__ = ["Config", "Constraint", "Launch", "LaunchRule", "SearchSpace"]
