"""Mojo programs in notebooks: compiled everywhere, run where there is a GPU."""
