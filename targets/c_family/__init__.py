"""What the targets written in a dialect of C share: the printer, and kernels with the host's steps around them."""
