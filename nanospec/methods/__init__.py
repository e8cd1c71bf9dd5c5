"""Every other way to draft and to verify, all of them exact. index.py has them by name.

trees/ several draft tokens after one; copies/ drafts that are copied from the text; lengths/ when
to stop a chain; rules/ other verifications; draft_models/ networks, most of which read the target's
hidden states; wrappers/ grammars, penalties and other tokenizers around a model. stack.py lets a
draft model speculate in its turn.
"""
