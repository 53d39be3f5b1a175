"""What workers answer.

`asking` is the way in, `templates` finds who answers, `sharing` joins those who ask the same, `calls` and
`inbox` carry, `demand` tells who watches, `withdrawal` forgets workers that are gone.
"""
