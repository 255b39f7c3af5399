"""What a first look shows about whether one look suffices: numbers in fixed order (classifier.evidence.names).

Four kinds: how the scores fall off; how the question's terms are covered by one passage, one document and the passages
shown; where the question's parts are at home; and whether the passages point beyond themselves. Every value is finite
and lies in [-8, 8].

Every question pays for this, and its arrays are tiny: a call of numpy costs more than the numbers in it. So whatever
is shared is computed once (the passages' products with each other and with the question), parts of all kinds go through
one product, and short rows are plain lists. tests/unit/classifier/plain_evidence.py has the same definitions written
straight down; a property test holds both together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from classifier.evidence.coverage import coverage
from classifier.evidence.documents import Documents
from classifier.evidence.names import KINDS, NAMES
from classifier.evidence.parts import parts_at_home
from classifier.evidence.pointing import pointing, unit
from classifier.evidence.shape import shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from classifier.evidence.look import Look

_MOST = 8.0


def evidence_features(look: Look) -> NDArray[np.float32]:
    """Return the features (len(NAMES),) of a checked look; of one without candidates, what an empty corpus shows."""
    values: dict[str, float] = {}
    if len(look.documents):
        docs = Documents(look)
        values |= shape(look, docs)
        values |= coverage(look, docs)
        toned_down = unit(look.vector - 0.5 * look.pieces)
        kinds = [kind for kind, _ in KINDS]
        values |= parts_at_home(kinds, [look.pieces, toned_down, look.words], look, docs)
        values |= pointing(look, docs)
    else:
        values |= {"unseen": 1.0, "missing_most": 1.0}
    features = np.array([values.get(name, 0.0) for name in NAMES], dtype=np.float32)
    bounded: NDArray[np.float32] = np.minimum(np.maximum(features, -_MOST), _MOST)
    return bounded if np.isfinite(bounded).all() else np.nan_to_num(bounded, nan=0.0)
