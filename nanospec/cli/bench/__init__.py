"""What speculation gains here, and what it costs: `nanospec bench`, a file for each subcommand."""
