"""Open streams of either era.

`connection` is one, `dispatcher` writes them, `wheel` keeps them alive, `guard` ends those that may not stay.
"""
