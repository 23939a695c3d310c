"""What leaves kt: the C++ header and other formats."""
