"""What it runs on: the local GPU, and a data file of GPUs that kt can model."""
