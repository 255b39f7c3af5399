"""What moved a probability: each feature's part in log-odds, in groups, with what the feature is.

average + sum of the parts = the log-odds that the probability is of. "Average" is a question whose every feature has
its mean over the training rows, so a part tells what makes this question unlike that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from classifier.evidence.names import FEATURES as EVIDENCE
from classifier.evidence.names import GROUPS as EVIDENCE_GROUPS
from classifier.surface import FEATURES as SURFACE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from classifier.decision_model import DecisionModel
    from classifier.text_model import TextModel

WORDING, MEANING, LABELS = "wording", "meaning", "own labels"


@dataclass(frozen=True, slots=True)
class Part:
    """One feature's log-odds, above 0 towards complex; `about` says what the feature is."""

    feature: str
    group: str
    about: str
    log_odds: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The parts, strongest first, and the log-odds of the average question to which they add."""

    average: float
    parts: tuple[Part, ...]

    @property
    def log_odds(self) -> float:
        """The log-odds that the parts add up to."""
        return self.average + sum(part.log_odds for part in self.parts)


def explain_text(model: TextModel, vector: NDArray[np.float32], surface: NDArray[np.float32]) -> Explanation:
    """Explain what the text alone says, from the encoder's vector (d,) and the surface features."""
    about = dict(SURFACE) | {"meaning": "what the text encoder makes of the question"}
    parts = [
        Part(name, MEANING if name == "meaning" else WORDING, about[name], log_odds)
        for name, log_odds in model.contributions(vector, surface)
    ]
    return Explanation(model.linear.average, _sorted(parts))


def explain_decision(
    model: DecisionModel, evidence: NDArray[np.float32], surface: NDArray[np.float32], shift: float = 0.0
) -> Explanation:
    """Explain the decision, from evidence and surface features; `shift` is what adaptation to own labels added."""
    about = dict((*EVIDENCE, *SURFACE))
    parts = [
        Part(name, EVIDENCE_GROUPS.get(name, WORDING), about[name], log_odds)
        for name, log_odds in model.contributions(evidence, surface)
    ]
    if shift:
        parts.append(Part("own_labels", LABELS, "what adaptation to your labels added", shift))
    return Explanation(model.incomplete.average, _sorted(parts))


def _sorted(parts: list[Part]) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: -abs(part.log_odds)))
