"""The command `nanospec`, which an installation brings: every script by a short name."""
