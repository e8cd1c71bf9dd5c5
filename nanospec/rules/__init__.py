"""Who else can decide. The chain's rule, keep or replace, is in speculate.py."""

from nanospec.rules.block import verify_block
from nanospec.speculate import verify

CHAIN_RULES = {"token": verify, "block": verify_block}          # by the name that demo and bench know them by
