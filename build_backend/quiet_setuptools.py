"""setuptools as the build backend, less the warning that it gives at each editable installation."""

import warnings

from setuptools.build_meta import *  # noqa: F403 - the hooks of a build backend

warnings.filterwarnings("ignore", message=r"\s*Editable installation")
