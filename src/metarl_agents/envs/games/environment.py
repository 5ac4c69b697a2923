"""A game as an environment: the agent takes one seat, an opponent the others and answers at once.

What lives here: seats, turns, whose chance comes from where, rewards. What does not: the rules (`contract.Game`), the
texts (`show` and `parse_action` of each environment). Read `step` first, then `reset`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from metarl_agents.envs.base import Environment
from metarl_agents.envs.games.contract import Decision, Game, Opponent, State, choose
from metarl_agents.envs.games.seating import MIXED, seating
from metarl_agents.errors import ConfigError
from metarl_agents.types import StepResult

Find = Callable[[str], Opponent]
"""From an opponent's name to the opponent; raises ConfigError where there is none of that name."""


class GameEnvironment(Environment):
    """One play of a game against an opponent. Subclass it with `show`, and what else differs.

    The seed decides deal, opponent, the agent's seat, and the opponent's chance. `restart` replays all of them, so the
    same actions meet the same answers in every episode of a trial; with `redraw_deal` each episode has a deal and
    opponent's chance of its own, a function of (seed, episode), against the same opponent in the same seat.

    A move that is not legal changes nothing: `info["invalid"]` is True, and the library charges for it.

    Whoever wants to answer for the opponent, for example to ask a language model for many games at once, uses the
    parts of `step` and `reset` themselves: `deal` or `submit`, `reply` for as long as `awaited` tells a decision (or
    `let_opponent_play`), then `outcome`.

    Args:
        game: the rules.
        find: from an opponent's name to the opponent.
        opponent: the only opponent, by name or as an object.
        opponents: several of them, dealt to tasks by their seeds.
        weights: how often each of `opponents` is met; None for equally often.
        seat: the agent's, by its name in `game.players`, or "mixed".
        redraw_deal: draw a new deal for each episode of a trial.
        pool: who is met, and how often, where neither `opponent` nor `opponents` nor `weights` is given.
    """

    name = "this game"
    """How messages call it."""
    reward_scale = 1.0
    """Reward for one unit of payoff."""
    refusal = "\nThat move is not allowed. Nothing has changed."
    """Follows the observation after an illegal move."""

    def __init__(
        self,
        game: Game,
        find: Find,
        *,
        opponent: str | Opponent | None = None,
        opponents: Sequence[str | Opponent] | None = None,
        weights: Sequence[float] | None = None,
        seat: str = MIXED,
        redraw_deal: bool = False,
        pool: Mapping[str, float] | None = None,
    ):
        if pool is not None and opponent is None and opponents is None and weights is None:
            opponents, weights = list(pool), list(pool.values())
        if opponent is not None and (opponents is not None or weights is not None):
            raise ConfigError(
                f"`opponent` and `opponents` (with `weights`) were both given to {self.name}. Use `opponent` for a "
                f"single one, `opponents` for several."
            )
        chosen = [opponent] if opponent is not None else opponents
        if chosen is None or isinstance(chosen, str):
            raise ConfigError(f"`opponents` is {chosen!r}, but a list of names is expected. Name one as `opponent`.")
        found = [find(one) if isinstance(one, str) else one for one in chosen]
        self.game, self.redraw_deal = game, bool(redraw_deal)
        self.seating = seating(self.name, found, weights, seat, game.players)
        self._state: State | None = None

    def show(self, state: State, seat: int) -> str:
        """Return what a seat sees of a state, at its end included: only what `game.information` holds, in words."""
        raise NotImplementedError(f"{type(self).__name__} must define show(self, state, seat).")

    def succeeded(self, payoffs: tuple[float, ...], seat: int) -> bool:
        """Return whether these payoffs at the end solve the agent's task. Default: it earned more than nothing."""
        return payoffs[seat] > 0

    def drew(self, payoffs: tuple[float, ...], seat: int) -> bool:
        """Return whether these payoffs at the end are a draw. Default: the agent earned exactly nothing."""
        return payoffs[seat] == 0

    def exact_values(self, opponent: Opponent, seat: int) -> tuple[float, float] | None:
        """Return (floor, ceiling) of a seat's payoff against an opponent, where the game has a way of its own to tell.

        The floor is what a player earns on average that cannot be exploited, the ceiling what the best response does.
        Default: None, and evaluation walks the whole game.

        Raises:
            TooLarge: there is such a way, but it would take too long (`exact.TooLarge`).
        """
        return None

    # ---- the environment ---------------------------------------------------------------------------------------

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the task of `seed`; the opponent has moved already where it moves first."""
        self.deal(seed=seed)
        self.let_opponent_play()
        result = self.outcome()
        return result.observation, result.info

    def restart(self) -> tuple[str, dict[str, Any]]:
        """Play the same deal again, or the next one of the task under `redraw_deal`."""
        self._started()
        self.deal()
        self.let_opponent_play()
        result = self.outcome()
        return result.observation, result.info

    def step(self, action: str) -> StepResult:
        """Play one action, let the opponent answer, and tell what came of it."""
        self.submit(action)
        self.let_opponent_play()
        return self.outcome()

    # ---- its parts ---------------------------------------------------------------------------------------------

    def deal(self, *, seed: int | None = None) -> None:
        """Deal the first episode of the task of `seed`, or, without a seed, the next episode of the current task."""
        if seed is not None:
            self.seed, self._episode = seed, 0
            self._opponent, self._seat = self.seating.of(seed)
        else:
            self._episode += 1
        self._chance = self.opponent_chance(self.seed, self._play)
        self._state = self._initial()
        self._paid = self.game.payoffs(self._state)
        self._moves, self._replaced, self._refused = 0, 0, False

    def submit(self, action: str) -> None:
        """Play the agent's action; one that is not legal is remembered as refused."""
        state = self._started()
        turn = self.game.current_player(state)
        if turn is None:
            raise RuntimeError(f"This play of {self.name} is over. Call `reset` or `restart` before the next `step`.")
        if turn != self._seat:
            raise RuntimeError("It is the opponent's turn. Give its answer to `reply` before the agent's next move.")
        self._refused = action not in self.game.legal_actions(state)
        if not self._refused:
            self._state, self._moves = self.game.play(state, action), self._moves + 1

    def awaited(self) -> Decision | None:
        """Return what the opponent has to decide now, or None where it is the agent's turn or the game is over."""
        state = self._started()
        turn = self.game.current_player(state)
        return None if turn is None or turn == self._seat else self._decision(state, turn)

    def reply(self, answer: str) -> tuple[str, bool]:
        """Play the opponent's answer: an action, or a text with one; anything else becomes a random legal action.

        Returns:
            (what was played, whether the answer meant it).
        """
        decision = self.awaited()
        if decision is None:
            raise RuntimeError("Nothing is asked of the opponent. Call `reply` only while `awaited` tells a decision.")
        action, replaced = self._readable(answer, decision, self._moves)
        self._state, self._moves = self.game.play(self._started(), action), self._moves + 1
        self._replaced += replaced
        return action, not replaced

    def let_opponent_play(self) -> None:
        """Let the seated opponent answer until it is the agent's turn or the game is over."""
        while (decision := self.awaited()) is not None:
            self.reply(self._opponent.act(decision, self._generator(self._moves)))

    def outcome(self) -> StepResult:
        """Return what the agent sees and has earned since it last looked."""
        state, seat = self._started(), self._seat
        payoffs = self.game.payoffs(state)
        earned = [self.reward_scale * (new - old) for new, old in zip(payoffs, self._paid, strict=True)]
        self._paid = payoffs
        over = self.game.current_player(state) is None
        success = over and self.succeeded(payoffs, seat)
        info = {
            "success": success,
            "draw": over and not success and self.drew(payoffs, seat),
            "invalid": self._refused,
            "admissible_actions": [] if over else list(self.game.legal_actions(state)),
            "payoff": payoffs[seat],
            "rewards": {player: earned[other] for other, player in enumerate(self.game.players) if other != seat},
            "opponent": self._opponent.name,
            "seat": seat,
            "opponent_invalid": self._replaced,
        }
        observation = self.show(state, seat) + (self.refusal if self._refused else "")
        return StepResult(observation, earned[seat], over, False, info)

    # ---- players -----------------------------------------------------------------------------------------------

    def players(self) -> tuple[str, ...]:
        """Return the names of the seats, in order."""
        return self.game.players

    def current_player(self) -> str | None:
        """Return whose turn it is, or None where the game is over."""
        turn = self.game.current_player(self._started())
        return None if turn is None else self.game.players[turn]

    def observe(self, player: str) -> str:
        """Return what a player sees."""
        return self.show(self._started(), self.game.players.index(player))

    def legal_actions(self, player: str) -> list[str]:
        """Return what a player may do now; nothing where it is not its turn."""
        return list(self.game.legal_actions(self._started())) if self.current_player() == player else []

    def fewest_turns_to_win(self) -> float:
        """Return the fewest turns that win the current play from its deal, for someone who knows all that is hidden.

        That someone knows the deal, the opponent, and even its dice: an upper bound on what memory can teach. Infinite
        where no actions win. All sequences of actions are tried, so it is for short games.
        """
        self._started()
        level, turns = [self._answered(self._initial(), 0)], 0
        while level:
            turns, following = turns + 1, []
            for state, moves in level:
                for action in self.game.legal_actions(state):
                    after, count = self._answered(self.game.play(state, action), moves + 1)
                    if self.game.current_player(after) is not None:
                        following.append((after, count))
                    elif self.succeeded(self.game.payoffs(after), self._seat):
                        return turns
            level = following
        return math.inf

    # ---- the opponent ------------------------------------------------------------------------------------------

    @property
    def seated(self) -> Opponent:
        """Who plays against the agent in the current task."""
        self._started()
        return self._opponent

    def _answered(self, state: State, moves: int) -> tuple[State, int]:
        """Return (state, moves made) once the opponent has answered, without touching the current play."""
        while (turn := self.game.current_player(state)) is not None and turn != self._seat:
            decision = self._decision(state, turn)
            answer = self._opponent.act(decision, self._generator(moves))
            state, moves = self.game.play(state, self._readable(answer, decision, moves)[0]), moves + 1
        return state, moves

    def _decision(self, state: State, turn: int) -> Decision:
        return Decision(
            seat=turn,
            information=self.game.information(state, turn),
            legal=self.game.legal_actions(state),
            observation=self.show(state, turn),
            rules=self.describe(),
            seed=self._chance,
        )

    def _readable(self, answer: str, decision: Decision, moves: int) -> tuple[str, bool]:
        """Return (legal action, whether it had to be made up)."""
        if answer in decision.legal:
            return answer, False
        action = self.parse_action(answer) if isinstance(answer, str) else None
        if action in decision.legal:
            return action, False
        return choose([(1.0, legal) for legal in decision.legal], Random(_number("instead", self._chance, moves))), True

    @staticmethod
    def opponent_chance(seed: int, play: int = 0) -> int:
        """Return what the opponent's chance follows from in one play of a task: `Decision.seed`.

        Args:
            seed: of the task.
            play: which one it is; replays of one deal count as one.
        """
        return _number("opponent", seed, play)

    @property
    def _play(self) -> int:
        """Which play of the task this is; replays of one deal count as one."""
        return self._episode if self.redraw_deal else 0

    def _initial(self) -> State:
        return self.game.deal(Random(_number("deal", self.seed, self._play)))

    def _generator(self, moves: int) -> Random:
        return Random(_number("move", self._chance, moves))

    def _started(self) -> State:
        if self._state is None:
            raise RuntimeError(f"No play of {self.name} has been started. Call `reset(seed=...)` first.")
        return self._state


def _number(*parts: object) -> int:
    """Return 64 bits that follow from the parts alone, in every process and on every Python."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "big")


def named_opponent(game: str, name: str, makers: dict[str, Callable[[], Opponent]], further: str = "") -> Opponent:
    """Return the opponent that a dictionary makes under this name.

    Args:
        game: the game's name, for the message.
        name: the opponent's.
        makers: name -> function that builds it.
        further: says which other names there are.

    Raises:
        ConfigError: it makes none of that name.
    """
    if name not in makers:
        raise ConfigError(
            f'`opponent` is "{name}", but {game} knows {", ".join(makers)}{further}. Name one of them, or pass an '
            f"object that plays (metarl_agents.envs.games.Opponent)."
        )
    return makers[name]()
