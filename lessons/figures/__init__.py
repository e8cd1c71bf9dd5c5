"""The pictures of the lessons. A lesson computes, and hands its numbers to the function that draws them."""

from .lessons_00_to_07 import *  # noqa: F401, F403
from .lessons_08_to_15 import *  # noqa: F401, F403
from .lessons_16_to_21 import *  # noqa: F401, F403
from .lessons_22_to_30 import *  # noqa: F401, F403
from .lessons_31_to_42 import *  # noqa: F401, F403
