"""What can go wrong with the laptop cluster, said in one sentence that tells what to do.

Needs the standard library only, and works before a virtual environment exists.
"""

from __future__ import annotations

__all__ = ["JavaMissing", "LocalClusterError", "ProcessDied"]


class LocalClusterError(Exception):
    """The local cluster can't be started, or one of its processes ended by itself.

    Parameters
    ----------
    sentence : str
        What happened and what to do about it, in one sentence for a person.
    log_tail : str
        The end of the log that shows why; empty when there is none.
    """

    def __init__(self, sentence: str, log_tail: str = "") -> None:
        super().__init__(sentence, log_tail)
        self.sentence = sentence
        self.log_tail = log_tail

    def __str__(self) -> str:
        """Return the sentence, then the end of the log, indented."""
        if not self.log_tail.strip():
            return self.sentence
        indented = "\n".join(f"  | {line}" for line in self.log_tail.rstrip().splitlines())
        return f"{self.sentence}\n{indented}"


class ProcessDied(LocalClusterError):
    """A process of the local cluster ended although nobody asked it to."""


class JavaMissing(LocalClusterError):
    """No Java that is new enough was found."""
