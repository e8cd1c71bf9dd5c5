"""Draft models: what says which token may come next, one file each. drafters/ decides how many are drawn, and where."""

from nanospec.cache import LanguageModel
from nanospec.draft_models.dflash import DFlash, DSpark
from nanospec.draft_models.eagle import Eagle
from nanospec.draft_models.eagle3 import Eagle3
from nanospec.draft_models.early_exit import EarlyExit
from nanospec.draft_models.hydra import Hydra
from nanospec.draft_models.learned import Learned
from nanospec.draft_models.medusa import Medusa
from nanospec.draft_models.mlp import MLPSpeculator
from nanospec.draft_models.prefix import Prefix

DraftModel = LanguageModel | Learned         # whatever a drafter may draft with
# Those that are trained on a target's features. A name is also its file's.
LEARNED = {"medusa": Medusa, "hydra": Hydra, "mlp": MLPSpeculator, "prefix": Prefix,
           "eagle": Eagle, "eagle3": Eagle3, "dflash": DFlash, "dspark": DSpark, "early_exit": EarlyExit}
