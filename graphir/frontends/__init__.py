"""Front ends: files and libraries that a graph can come from."""
