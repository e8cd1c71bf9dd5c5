"""What a person runs and sees: the command `nanospec`, a file for each of its names; bench/ and
show/.
"""
