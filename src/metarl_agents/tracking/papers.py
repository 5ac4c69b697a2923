"""The papers behind a run's settings, with what is needed to cite them.

Titles, authors and years are those of arXiv. Which estimator and which return a setting names is told by
`advantages/`. An estimator without a paper here is named as the settings name it, and nothing is cited for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from metarl_agents.config import Config


@dataclass(frozen=True)
class Paper:
    """What a citation needs."""

    key: str
    """BibTeX key."""
    name: str
    """Name of the method."""
    title: str
    authors: str
    """In BibTeX's form: "First Last and First Last"."""
    year: int
    arxiv: str | None
    """arXiv number; None where the paper is not there."""
    journal: str = ""
    """Where it appeared, if not on arXiv."""

    def bibtex(self) -> str:
        """Return the BibTeX entry."""
        kind = "misc" if self.arxiv else "article"
        values = {"title": f"{{{self.title}}}", "author": self.authors, "year": str(self.year)}
        if self.arxiv:
            values |= {"eprint": self.arxiv, "archivePrefix": "arXiv", "url": f"https://arxiv.org/abs/{self.arxiv}"}
        else:
            values |= {"journal": self.journal}
        lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in values.items())
        return f"@{kind}{{{self.key},\n{lines}\n}}"


LAMER = Paper(
    "jiang2025metarl",
    "LaMer",
    "Meta-RL Induces Exploration in Language Agents",
    "Yulun Jiang and Liangze Jiang and Damien Teney and Michael Moor and Maria Brbic",
    2025,
    "2512.16848",
)
MAGE = Paper(
    "yang2026mage",
    "MAGE",
    "MAGE: Meta-Reinforcement Learning for Language Agents toward Strategic Exploration and Exploitation",
    "Lu Yang and Zelai Xu and Minyang Xie and Jiaxuan Gao and Zhao Shok and Yu Wang and Yi Wu",
    2026,
    "2603.03680",
)
_ESTIMATORS = {
    "gigpo": Paper(
        "feng2025gigpo",
        "GiGPO",
        "Group-in-Group Policy Optimization for LLM Agent Training",
        "Lang Feng and Zhenghai Xue and Tingcong Liu and Bo An",
        2025,
        "2505.10978",
    ),
    "rloo": Paper(
        "ahmadian2024rloo",
        "RLOO",
        "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
        "Arash Ahmadian and Chris Cremer and Matthias Gall{\\'e} and Marzieh Fadaee and Julia Kreutzer and "
        'Olivier Pietquin and Ahmet {\\"U}st{\\"u}n and Sara Hooker',
        2024,
        "2402.14740",
    ),
    "grpo": Paper(
        "shao2024grpo",
        "GRPO",
        "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
        "Zhihong Shao and Peiyi Wang and Qihao Zhu and Runxin Xu and Junxiao Song and Xiao Bi and Haowei Zhang and "
        "Mingchuan Zhang and Y. K. Li and Y. Wu and Daya Guo",
        2024,
        "2402.03300",
    ),
    "reinforce": Paper(
        "williams1992reinforce",
        "REINFORCE",
        "Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning",
        "Ronald J. Williams",
        1992,
        None,
        "Machine Learning",
    ),
    "ppo": Paper(
        "schulman2017ppo",
        "PPO",
        "Proximal Policy Optimization Algorithms",
        "John Schulman and Filip Wolski and Prafulla Dhariwal and Alec Radford and Oleg Klimov",
        2017,
        "1707.06347",
    ),
}
_MAGE_RETURNS = ("differential", "final")


def papers_of(config: Config) -> list[Paper]:
    """Return the papers whose methods these settings use, the most specific first; a user's own function has none."""
    estimator = _ESTIMATORS.get(config.credit.advantages)
    return [*_meta(config), *([] if estimator is None else [estimator])]


def custom_functions(config: Config) -> list[str]:
    """Name the estimator and the return mode that are a user's own, with their addresses: no paper tells of them."""
    credit = config.credit
    named = {"advantage estimator": credit.advantages, "return mode": credit.return_mode}
    return [f"the custom {kind} {address}" for kind, address in named.items() if ":" in address]


def method_name(config: Config) -> str:
    """Name the method in a few words, as plain text: "meta-RL (LaMer) with GiGPO", or "RL with GiGPO"."""
    meta, estimator = _meta(config), config.credit.advantages
    kind = f"meta-RL ({meta[0].name})" if meta else "RL"
    shipped = _ESTIMATORS[estimator].name if estimator in _ESTIMATORS else estimator
    parts = [*([] if ":" in estimator else [shipped]), *custom_functions(config)]
    return f"{kind} with {' and '.join(parts)}"


def _meta(config: Config) -> list[Paper]:
    if config.trial.num_episodes == 1:
        return []
    return [MAGE, LAMER] if config.credit.return_mode in _MAGE_RETURNS else [LAMER]
