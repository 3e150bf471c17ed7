"""What stays where it is: a copy of it, or one in another process, would use memory that it does not own."""

from __future__ import annotations

from typing import NoReturn


class Stays:
    """Refuses ``copy`` and ``pickle``. ``instead``: what to do, for the message of the TypeError."""

    instead = "make another one where it is needed"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} can be neither copied nor pickled: {self.instead}")
