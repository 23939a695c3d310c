"""How a winner is found: compile, verify, measure, model, search."""
