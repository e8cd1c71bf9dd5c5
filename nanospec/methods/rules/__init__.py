"""Rules beside `verify` and the node rule of trees/: block verification of a chain, traversal of a
tree. Rules that change the text's distribution stand in lessons/, beside the lesson that shows what
they cost.
"""
