"""The pictures of the lessons. A lesson computes, and hands its numbers to the function that draws them."""

from .lessons_00_to_07 import *  # noqa: F401, F403
from .lessons_08_to_16 import *  # noqa: F401, F403
from .lessons_17_to_23 import *  # noqa: F401, F403
from .lessons_24_to_32 import *  # noqa: F401, F403
from .lessons_33_to_43 import *  # noqa: F401, F403
from .lessons_44_to_46 import *  # noqa: F401, F403
