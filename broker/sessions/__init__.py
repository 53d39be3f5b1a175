"""Handshake-era sessions.

`ownership` decides whose stream delivers, `local_session` is what is known of one session here, `releases`
gives back what has no stream here.
"""
