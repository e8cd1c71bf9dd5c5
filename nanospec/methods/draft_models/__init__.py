"""Learned draft models, a file for each family: small networks on the target's hidden states. A
GPT needs nothing from here.

The core knows them by one method, `draft_model.reader(depth)`.
"""

from nanospec.methods.draft_models.dflash import DFlash, DSpark
from nanospec.methods.draft_models.eagle import MTP, Eagle
from nanospec.methods.draft_models.eagle3 import Eagle3
from nanospec.methods.draft_models.early_exit import EarlyExit
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.draft_models.medusa import Hydra, Medusa
from nanospec.methods.draft_models.mlp import MLPSpeculator
from nanospec.methods.draft_models.prefix import Lookback, Prefix

LEARNED: dict[str, type[Learned]] = {
    "medusa": Medusa, "hydra": Hydra, "mlp": MLPSpeculator, "prefix": Prefix, "lookback": Lookback,
    "eagle": Eagle, "eagle3": Eagle3, "mtp": MTP, "dflash": DFlash, "dspark": DSpark,
    "early_exit": EarlyExit}
