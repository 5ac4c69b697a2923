"""A toy game for three players, for the tests of games."""

from dataclasses import dataclass

from metarl_agents.envs.games import Game, GameEnvironment, UniformOpponent


@dataclass(frozen=True)
class Coin(Game):
    """A toy for three: a hidden coin, everybody calls it in turn, those who are right take one from each who is not."""

    players = ("left", "middle", "right")

    def deals(self):
        return ((0.25, ("heads", ())), (0.75, ("tails", ())))

    def current_player(self, state):
        return len(state[1]) if len(state[1]) < 3 else None

    def legal_actions(self, state):
        return ("heads", "tails") if len(state[1]) < 3 else ()

    def play(self, state, action):
        return (state[0], (*state[1], action))

    def payoffs(self, state):
        right = [call == state[0] for call in state[1]] if len(state[1]) == 3 else [True] * 3
        return tuple(float(right.count(False) if one else -right.count(True)) for one in right)

    def information(self, state, seat):
        return state[1]


class Coins(GameEnvironment):
    """The toy as an environment."""

    def __init__(self, opponent="random", seat="mixed", **keywords):
        super().__init__(Coin(), lambda name: UniformOpponent(name), opponent=opponent, seat=seat, **keywords)

    def show(self, state, seat):
        over = self.game.current_player(state) is None
        return f"calls: {' '.join(state[1])}{f' coin: {state[0]}' if over else ''}"
