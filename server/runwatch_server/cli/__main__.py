"""`python -m runwatch_server.cli`: the same as `runwatch`."""

from runwatch_server.cli import main

if __name__ == "__main__":
    main()
