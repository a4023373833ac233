"""The signals of a daemon, taken only where it waits or looks: never between an order and its answer."""

import signal
from types import TracebackType

_END = (signal.SIGTERM, signal.SIGINT)
_ALL = (*_END, signal.SIGHUP)


class Signals:
    """Keeps the signals back while it is entered, in this thread and in those begun since.

    A signal of the process goes to any thread that does not keep it back, so no other may have begun before.

    Programs that are started meanwhile keep them back, too: who stops a whole control group does not cut off
    Slurm's commands at work.

    Attributes:
        end: The daemon is to end.
        reload: It is to read its configuration again.
    """

    def __init__(self) -> None:
        self.end = False
        self.reload = False

    def __enter__(self) -> "Signals":
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while signal.sigtimedwait(_ALL, 0.0):  # asked for twice, the end has come already
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def wait(self, seconds: float) -> None:
        """Wait some seconds, or until a signal comes; at once if the end was asked for."""
        if self.end:
            return
        came = signal.sigtimedwait(_ALL, max(0.0, seconds))
        if came is not None:
            self.end = self.end or came.si_signo in _END
            self.reload = self.reload or came.si_signo == signal.SIGHUP
