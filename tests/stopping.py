"""Trainings that are stopped at a step."""

from scfs.training import loop


def stopping_at(step: int) -> type[loop.Interrupt]:
    """An `Interrupt` that requests a stop the `step`-th time that it is asked, as the loop does after every step."""

    class Stopping(loop.Interrupt):
        checks = 0

        @property
        def requested(self):
            type(self).checks += 1
            return self.checks == step

        @requested.setter
        def requested(self, _): ...

    return Stopping
