"""`pointsman eval classifier` and `pointsman train`: the classifier's own functions with our errors and our report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from classifier.artifact import SHIPPED
from classifier.errors import BadLabels, ClassifierError
from classifier.evaluation import text
from classifier.training import own
from standard.domain.errors import Damaged, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable


def evaluate_classifier(
    data: Path,
    *,
    model: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> dict[str, Any]:
    """Measure the text model on the labelled sources in the folder `data`; see classifier.evaluation.text.

    `model` is an artifact's folder, None the shipped one. Blocks for minutes: call it in a thread. Raises InvalidInput,
    Damaged.
    """
    try:
        return text.evaluate_classifier(data, model=model or SHIPPED, progress=progress)
    except BadLabels as error:
        raise InvalidInput("data", error.message) from None
    except ClassifierError as error:
        raise Damaged(error.message) from None


def train_from_labels(
    labels: Path,
    output: Path,
    *,
    base: Path | None = None,
    progress: Callable[[float], None] = lambda _share: None,
) -> dict[str, Any]:
    """Adapt the model in `base` (None: the shipped one) to a file of labels; see classifier.training.own.

    Blocks for up to minutes: call it in a thread. Raises InvalidInput, Damaged.
    """
    try:
        return own.train_from_labels(labels, output, base=base or SHIPPED, progress=progress)
    except BadLabels as error:
        raise InvalidInput("labels", error.message) from None
    except ClassifierError as error:
        raise Damaged(error.message) from None
