"""The shipped environments: names and addresses, nothing imported until one is asked for."""

from metarl_agents.envs.registry import register

register("alfworld", "metarl_agents.environments.alfworld:ALFWorld")
register("minesweeper", "metarl_agents.environments.minesweeper:Minesweeper")
register("sokoban", "metarl_agents.environments.sokoban:Sokoban")
register("two_doors", "metarl_agents.environments.two_doors:TwoDoors")
register("webshop", "metarl_agents.environments.webshop:WebShop")
