"""The pictures of the lessons. A lesson computes, and hands its numbers to the function that draws them."""

from .lessons_00_to_07 import *  # noqa: F401, F403
from .lessons_08_to_15 import *  # noqa: F401, F403
from .lessons_16_to_22 import *  # noqa: F401, F403
from .lessons_23_to_31 import *  # noqa: F401, F403
from .lessons_32_to_42 import *  # noqa: F401, F403
from .lessons_43_and_44 import *  # noqa: F401, F403
