"""What a person runs and sees: the command `nanospec`, a file for each name; bench/ and show/."""
