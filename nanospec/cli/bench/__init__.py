"""What speculation gains here, and what it costs: `nanospec bench`. A file for each subcommand
(speed, acceptance, serve, beside), and what they share.
"""
