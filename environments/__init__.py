"""The shipped environments: names and addresses, nothing imported until one is asked for."""

from metarl_agents.envs.registry import register

register("minesweeper", "metarl_agents.environments.minesweeper:Minesweeper")
register("two_doors", "metarl_agents.environments.two_doors:TwoDoors")
