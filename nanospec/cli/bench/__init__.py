"""What speculation gains here, and what it costs: `python -m nanospec.cli.bench`, a file for each subcommand."""
