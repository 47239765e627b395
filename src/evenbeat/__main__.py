"""`python -m evenbeat`: the command line."""

from evenbeat.cli import main

if __name__ == "__main__":
    main()
