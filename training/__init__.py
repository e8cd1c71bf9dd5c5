"""What train_tiny.py is made of. An installation runs models, and has only the losses of this.

    jobs.py, for_target.py      what it is asked for: a pair and draft models of ours; a draft model
                                for a target of others
    step.py, pair.py            one step; the phases of a pair, and what a resumed training needs
    learning.py, kept.py        draft models that read hidden states: on texts as they come; on
                                texts and states that were made once and are read from disk
    batches.py, packages.py, own_texts.py       which texts: windows, the packages' sources, what a
                                chat model writes
    grow.py, mixed.py           a deep target from a shallow one; products in bfloat16
    watch.py, pictures.py       what is seen of it
"""
