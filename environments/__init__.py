"""The shipped environments: names and addresses, nothing imported until one is asked for."""

from metarl_agents.envs.registry import register

register("alfworld", "metarl_agents.environments.alfworld:ALFWorld")
register("kuhn", "metarl_agents.environments.kuhn:Kuhn")
register("matrix_game", "metarl_agents.environments.matrix_game:MatrixGame")
register("minesweeper", "metarl_agents.environments.minesweeper:Minesweeper")
register("sokoban", "metarl_agents.environments.sokoban:Sokoban")
register("tictactoe", "metarl_agents.environments.tictactoe:TicTacToe")
register("two_doors", "metarl_agents.environments.two_doors:TwoDoors")
register("webshop", "metarl_agents.environments.webshop:WebShop")
