"""The shipped settings files: presets of the environments, and configurations of the launcher.

`recipes/configs` and `recipes/accelerate_configs` of a checkout are links to the folders here, which are installed
with the package.
"""

from __future__ import annotations

from pathlib import Path

from metarl_agents.errors import ConfigError

CONFIGS = Path(__file__).parent / "configs"
"""`<environment>/<name>.yaml`: settings of a recipe, or of a warm start."""
LAUNCHERS = Path(__file__).parent / "accelerate_configs"
"""`<name>.yaml`, for `accelerate launch --config_file`."""
_SHIPPED = "metarl_agents.environments."


def preset_file(env: str, name: str = "tiny") -> Path | None:
    """Return the preset of that name for an environment, or None where there is none.

    Args:
        env: the name of a shipped environment, or its address.
        name: of the preset.

    Raises:
        ConfigError: the installation lacks all presets.
    """
    if not CONFIGS.is_dir():
        raise ConfigError(f"the folder {CONFIGS} is missing: install metarl_agents again.")
    shipped = env.removeprefix(_SHIPPED).partition(":")[0] if env.startswith(_SHIPPED) else env
    known = {path.parent.name: path for path in CONFIGS.glob(f"*/{name}.yaml")}
    return known.get(shipped)


def launcher_file(name: str) -> str:
    """Return the path of a launcher's configuration: relative in a checkout, else inside the installed package.

    >>> launcher_file("zero2").endswith("accelerate_configs/zero2.yaml")
    True
    """
    inside = Path("recipes") / "accelerate_configs" / f"{name}.yaml"
    return str(inside if inside.is_file() else LAUNCHERS / inside.name)
