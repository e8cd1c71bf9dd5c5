"""Draft trees: several draft tokens may follow one node. The room adds a draft that knows its
parents, its attention mask and its accepted path (tree_draft.py), how a draft model reads a tree
(tree_reader.py), the rule that verifies one node by node (node_rule.py), and drafters that grow one
(drawn, dynamic_tree; shapes.py says which shape is best).
"""
