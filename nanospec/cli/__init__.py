"""What a person runs and sees: demo, chat, why and bench/, and what they share; show/ is for the
terminal. __main__.py is the command `nanospec`, and knows where its other names are.
"""
