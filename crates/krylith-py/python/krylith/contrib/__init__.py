"""Krylith inside codes in Python: a module for each of them, named as the code.

The modules need no code of their own client until they are used, and the wheel does not install the clients.
"""
