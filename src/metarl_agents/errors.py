"""The exceptions of the library.

Each is also a builtin, so ordinary handlers work. A user's mistake raises one of these with one sentence that
says what to do; a model's bad output and an environment's exception are data and never reach the user as a crash.
"""


class ConfigError(ValueError):
    """A setting is wrong, or two settings contradict each other."""

    of_one_process: bool = False
    """Whether it depends on what one of several processes has sampled, so that the others may know nothing of it.

    All processes make the other mistakes alike, and the first one tells; this one is told by the process that raises.
    """


class NonFiniteError(ConfigError):
    """Weights, or what a model computes, are no finite numbers any more."""

    of_one_process = True


class UnknownEnvironmentError(KeyError):
    """No environment of that name or address exists."""

    def __str__(self) -> str:
        """Return the plain sentence (`KeyError` would print its `repr`)."""
        return str(self.args[0]) if self.args else ""


class EnvironmentContractError(RuntimeError):
    """An environment breaks the contract of `metarl_agents.envs.Environment`."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, found or read."""
