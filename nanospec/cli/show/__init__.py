"""What we show: the same rounds the tests read, in the terminal and on a page."""
