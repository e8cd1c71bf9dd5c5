"""Rules beside `verify`: block verification of a chain. Those for trees alone stand in trees/, and
those that change the text's distribution in lessons/, beside the lesson that shows what they cost.
"""
