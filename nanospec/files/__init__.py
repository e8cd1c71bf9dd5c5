"""What is read and written: tokenizers, checkpoints, the text to train on."""
