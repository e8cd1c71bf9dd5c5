"""Who else can decide. The chain's rule, keep or replace, is in speculate.py."""
