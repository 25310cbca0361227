"""Interrupts: a training that is stopped by a signal stops between two steps.

Ctrl-C may arrive anywhere, also while a state is being copied. `Interrupts` remembers
the signal, so that the training loop can save a consistent state first; a second signal
stops at once. What was saved becomes a note of the exception, which Python shows below
its traceback and the command line as its message.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class Interrupts:
    """Context manager that holds back signals which would raise an exception.

    Signals that have no Python handler keep their effect, and outside of the main
    thread nothing changes.

    A signal that is still pending at the end has its effect then.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._number: int | None = None

    @property
    def pending(self) -> bool:
        """Whether a signal was held back."""
        return self._number is not None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for name in SIGNALS:
                number = getattr(signal, name, None)
                handler = None if number is None else signal.getsignal(number)
                # SIG_DFL and SIG_IGN are numbers
                if number is not None and callable(handler):
                    self._handlers[number] = signal.signal(number, self._hold)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if error is None:
            self.raise_pending()

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self.pending:
            self._handlers[number](number, frame)
        self._number = number

    def raise_pending(self) -> None:
        """Do what the signal that was held back would have done."""
        if self._number is not None:
            self._handlers[self._number](self._number, None)
