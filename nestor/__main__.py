"""`python -m nestor` is the command `nestor`."""

from nestor.cli import main

if __name__ == "__main__":
    main()
