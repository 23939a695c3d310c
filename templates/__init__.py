"""What varies: Jinja2 templates over plain CUDA C++ headers, rendered to self-contained sources."""
