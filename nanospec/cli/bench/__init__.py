"""What speculation gains here, and what it costs: `nanospec bench`. A file for each subcommand
(speed, acceptance, serve, transformers), and what they share.
"""
