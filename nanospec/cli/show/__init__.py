"""What we show: the same rounds the tests read, in the terminal and on a page; what is typed; and
the house style of pictures (figures.py), which lessons, trainings and docs/ draw.
"""
