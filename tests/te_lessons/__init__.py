"""Well-known lessons of the TE language, in its own spelling: only the two imports at the top of each file differ."""
