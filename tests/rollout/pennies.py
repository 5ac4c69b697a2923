"""Matching pennies in which any text is a move, so that untrained models can play it; and opponents for its tests."""

from dataclasses import dataclass

from metarl_agents.envs import Wording
from metarl_agents.envs.games import Game, GameEnvironment, PolicyOpponent, UniformOpponent

SHORT = Wording(play_request="Choose.", reflect_request="What to remember?", memory_heading="", reflect_heading="")
FACES = ("heads", "tails")


@dataclass(frozen=True)
class PenniesGame(Game):
    """Two or more rounds; the first seat wins a round of equal faces. Choices are shown when both are made."""

    players = ("even", "odd")
    rounds: int = 3

    def deals(self):
        return ((1.0, ()),)

    def current_player(self, state):
        return len(state) % 2 if len(state) < 2 * self.rounds else None

    def legal_actions(self, state):
        return FACES if self.current_player(state) is not None else ()

    def play(self, state, action):
        return (*state, action)

    def payoffs(self, state):
        won = sum(1 if one == other else -1 for one, other in zip(state[::2], state[1::2], strict=False))
        return (float(won), -float(won))

    def information(self, state, seat):
        return state[: len(state) - len(state) % 2]


class Pennies(GameEnvironment):
    """The game as an environment."""

    name = "Pennies"
    wording = SHORT

    def __init__(self, opponents=("heads", "random"), weights=None, seat="mixed", rounds=3):
        super().__init__(PenniesGame(rounds), self.find, opponents=list(opponents), weights=weights, seat=seat)

    @staticmethod
    def find(name):
        return UniformOpponent() if name == "random" else PolicyOpponent(name, lambda decision: {name: 1.0})

    def parse_action(self, text):
        return FACES[sum(text.encode()) % 2]

    def show(self, state, seat):
        return " ".join((*self.game.players[seat : seat + 1], *self.game.information(state, seat)))


class Cautious(Pennies):
    """The same, but only a text that names exactly one face is a move."""

    def parse_action(self, text):
        named = [face for face in FACES if face in text]
        return named[0] if len(named) == 1 else None
