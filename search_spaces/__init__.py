"""What may vary: one YAML file per kernel family, loaded, checked and enumerated."""
