"""`python -m dally` is the command `dally`."""

from dally.commands import main

if __name__ == "__main__":
    main(prog_name="dally")
