"""What speculation gains here, and what it costs: `python -m nanospec.bench`, a file for each subcommand."""
