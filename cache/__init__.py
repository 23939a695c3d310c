"""What is remembered: measurements and winners, keyed by all that could change them."""
