"""Does the surface of a question give its label away? Run this before trusting any figure trained on the questions.

A text router that learns style (longer, "compare", "policy") looks excellent in its own data and fails on the next
company. This script therefore tries to predict the label without understanding anything, with whole domains held out:
from length alone and from a bag of words alone. Both have to stay close to a coin. It also lists what leaks (words,
cue words, document words, openers), duplicates, and the counts by label, domain, voice and language.

    python classifier/data/check_balance.py   # every *.jsonl in questions/ with labelled rows
    python classifier/data/check_balance.py FILE... --with FILE...  # --with: rows that join the training folds only
    python classifier/data/check_balance.py FILE... --strict  # exit status 1 when a limit is exceeded
    python classifier/data/check_balance.py FILE... --domains  # adds a line for each domain
    python classifier/data/check_balance.py FILE... --json  # the same as one JSON object

The limits bind length (accuracy and AUC) and single words (accuracy); pairs of words are shown as a further warning.

Rows: {"id", "question", "label": "simple" | "complex", "domain", "voice"}.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

QUESTIONS: Final = Path(__file__).parent / "questions"
LABELS: Final = ("simple", "complex")
WITHOUT_SPACES: Final = frozenset({"japanese", "chinese"})
CHARACTERS_A_WORD: Final = 2.2  # Japanese and Chinese lengths are put on the scale of the other languages by this

LENGTH_LIMIT: Final = 0.56
WORDS_LIMIT: Final = 0.66
FOLDS: Final = 20  # at most; with fewer domains each domain is its own fold

# Vowel signs are no word characters to `re`: without them a Hindi word falls into pieces.
LETTER: Final = r"(?:[^\W_]|[\u0300-\u036f\u0900-\u097f])"
WORD: Final = r"\S+"  # the texts come as words joined by spaces
TOKEN: Final = re.compile(rf"{LETTER}+(?:['’]{LETTER}+)*")

LANGUAGES: Final = frozenset(
    TOKEN.findall("spanish german french portuguese italian dutch polish turkish japanese chinese hindi arabic")
)
CUES: Final = frozenset(
    TOKEN.findall(
        """
        and or but compare which who whom whose same other others our difference differences all every each any
        before after both between since still also again last latest now currently why how many much what when where
        has have been did does is are was were not than more most least first then ever yet already per their that
        """
    )
)
DOCUMENT_WORDS: Final = frozenset(
    TOKEN.findall(
        """
        page pages guide sheet report reports clause policy manual procedure rule rules register list log table letter
        contract agreement note notes memo minutes plan form handbook standard section file schedule record records
        survey review audit chart notice code terms
        """
    )
)


class Model(Protocol):
    """The two calls the probes make of a scikit-learn classifier."""

    def fit(self, x: Any, y: Any) -> object:  # noqa: ANN401 - arrays or texts, as scikit-learn takes them
        """Learn from rows and labels."""

    def predict_proba(self, x: Any) -> Any:  # noqa: ANN401
        """(n, 2) probabilities."""


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled question as it stands in a file."""

    id: str
    question: str
    label: str
    domain: str
    voice: str


@dataclass(frozen=True, slots=True)
class Probe:
    """What a model without understanding reaches on held-out domains: accuracy at 0.5 and AUC, both in 0..1."""

    name: str
    accuracy: float
    auc: float


@dataclass(frozen=True, slots=True)
class Lean:
    """How often a word or opener occurs in each label (in questions, not occurrences) and how far from chance (z)."""

    term: str
    simple: int
    complex: int
    z: float


def load(paths: Iterable[Path]) -> list[Row]:
    """Read rows; a malformed line is an error that names file and line."""
    rows: list[Row] = []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                raw = json.loads(line)
                row = Row(**{name: raw[name] for name in ("id", "question", "label", "domain", "voice")})
            except (ValueError, KeyError, TypeError) as error:
                raise SystemExit(f"{path}:{number}: not a labelled question ({error!r})") from error
            if row.label not in LABELS or not row.question.strip():
                raise SystemExit(f"{path}:{number}: label must be one of {LABELS} and the question not empty")
            rows.append(row)
    if not rows:
        raise SystemExit("no rows read: name a file, or put *.jsonl files with labelled questions into questions/")
    return rows


def words(row: Row) -> list[str]:
    """Lower-case words; a Japanese or Chinese question is cut into pairs of characters."""
    if row.voice in WITHOUT_SPACES:
        text = re.sub(r"[\W_]+", "", row.question)
        return [text[i : i + 2] for i in range(len(text) - 1)]
    return TOKEN.findall(row.question.lower())


def length(row: Row) -> float:
    """Length in words, or in characters scaled to words where the script has no spaces."""
    if row.voice in WITHOUT_SPACES:
        return len(row.question) / CHARACTERS_A_WORD
    return float(len(row.question.split()))


def length_features(rows: Sequence[Row]) -> NDArray[np.float64]:
    """(n, 4): words, log words, characters, commas."""
    return np.array(
        [[length(r), math.log1p(length(r)), len(r.question), len(re.findall("[,،、，]", r.question))] for r in rows]
    )


def held_out_scores(
    fit: Callable[[NDArray[np.intp], NDArray[np.intp]], NDArray[np.float64]],
    rows: Sequence[Row],
) -> NDArray[np.float64]:
    """Probability of complex for every row, each from a model that saw no row of its domain."""
    groups = np.array([r.domain for r in rows])
    folds = min(FOLDS, len(set(groups.tolist())))
    if folds < 2:
        raise SystemExit("needs rows of at least two domains: whole domains are held out")
    scores = np.zeros(len(rows))
    for train, test in GroupKFold(n_splits=folds).split(np.zeros(len(rows)), groups=groups):
        scores[test] = fit(train, test)
    return scores


def probe_all(rows: Sequence[Row], reported: Sequence[bool]) -> list[Probe]:
    """Fit every surface model with whole domains held out; score the reported rows only."""
    y = np.array([r.label == "complex" for r in rows], dtype=np.int64)
    keep = np.array(reported)
    lengths = length_features(rows)
    texts = [" ".join(words(r)) for r in rows]

    def on_lengths(model: Model) -> Callable[[NDArray[np.intp], NDArray[np.intp]], NDArray[np.float64]]:
        def fit(train: NDArray[np.intp], test: NDArray[np.intp]) -> NDArray[np.float64]:
            model.fit(lengths[train], y[train])
            return np.asarray(model.predict_proba(lengths[test])[:, 1])

        return fit

    def on_texts(model: Model) -> Callable[[NDArray[np.intp], NDArray[np.intp]], NDArray[np.float64]]:
        def fit(train: NDArray[np.intp], test: NDArray[np.intp]) -> NDArray[np.float64]:
            model.fit([texts[i] for i in train], y[train])
            return np.asarray(model.predict_proba([texts[i] for i in test])[:, 1])

        return fit

    def bag(vectorizer: CountVectorizer, strength: float) -> Model:
        model: Model = make_pipeline(vectorizer, LogisticRegression(C=strength, max_iter=2000))
        return model

    def counts(highest: int) -> CountVectorizer:
        return CountVectorizer(binary=True, min_df=2, ngram_range=(1, highest), token_pattern=WORD)

    tree = HistGradientBoostingClassifier(max_depth=3, max_iter=60, learning_rate=0.1, random_state=0)
    models = {
        "length, logistic": on_lengths(make_pipeline(StandardScaler(), LogisticRegression())),
        "length, trees": on_lengths(tree),
        "words, C=1": on_texts(bag(counts(1), 1.0)),
        "words, C=0.1": on_texts(bag(counts(1), 0.1)),
        "pairs of words, C=0.1": on_texts(bag(counts(2), 0.1)),
        "words, tf-idf": on_texts(bag(TfidfVectorizer(sublinear_tf=True, min_df=2, token_pattern=WORD), 1.0)),
    }
    probes = []
    for name, fit in models.items():
        scores = held_out_scores(fit, rows)[keep]
        truth = y[keep]
        accuracy = float(((scores > 0.5) == truth).mean())
        probes.append(Probe(name, round(accuracy, 3), round(float(roc_auc_score(truth, scores)), 3)))
    return probes


def leaning(rows: Sequence[Row], terms_of: Callable[[Row], Iterable[str]], at_least: int) -> list[Lean]:
    """Terms by how far their share of complex questions is from the whole's, in standard errors, most leaning first."""
    share = sum(r.label == "complex" for r in rows) / len(rows)
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for term in set(terms_of(row)):
            seen[term][row.label] += 1
    leans = []
    for term, by_label in seen.items():
        total = by_label["simple"] + by_label["complex"]
        if total >= at_least:
            z = (by_label["complex"] - share * total) / math.sqrt(max(share * (1 - share), 1e-9) * total)
            leans.append(Lean(term, by_label["simple"], by_label["complex"], round(z, 2)))
    return sorted(leans, key=lambda lean: -abs(lean.z))


def near_duplicates(rows: Sequence[Row], threshold: float = 0.85) -> list[tuple[str, str, float]]:
    """Pairs whose sets of words overlap by at least `threshold` (Jaccard); the same label or another."""
    postings: dict[str, list[int]] = defaultdict(list)
    sets = [frozenset(words(r)) for r in rows]
    frequency = Counter(word for s in sets for word in s)
    pairs = []
    for i, current in enumerate(sets):
        candidates: set[int] = set()
        rare = sorted(current, key=lambda word: (frequency[word], word))
        # Two sets that overlap this much share one of their rarest few words (prefix filter).
        for word in rare[: max(1, len(rare) - math.ceil(threshold * len(rare)) + 1)]:
            candidates.update(postings[word])
            postings[word].append(i)
        for j in candidates:
            union = len(current | sets[j])
            overlap = len(current & sets[j]) / union if union else 1.0
            if overlap >= threshold:
                pairs.append((rows[j].id, rows[i].id, round(overlap, 2)))
    return pairs


def opener(count: int) -> Callable[[Row], Iterable[str]]:
    """The first `count` words as one term."""
    return lambda row: [" ".join(words(row)[:count])]


def by_label(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, dict[str, int]]:
    """Counts of simple and complex for each value of `key`, in alphabetical order."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        table[key(row)][row.label] += 1
    return {name: {label: table[name][label] for label in LABELS} for name in sorted(table)}


def check(rows: Sequence[Row], joined: Sequence[Row]) -> dict[str, Any]:
    """The whole report as plain JSON values; `joined` rows train the probes but are not reported on."""
    probes = probe_all([*rows, *joined], [True] * len(rows) + [False] * len(joined))
    watched = CUES | DOCUMENT_WORDS
    lengths = {label: np.array([length(r) for r in rows if r.label == label]) for label in LABELS}
    worst_length = max(max(p.accuracy, p.auc) for p in probes if p.name.startswith("length"))
    worst_words = max(p.accuracy for p in probes if p.name.startswith("words"))
    ids = Counter(r.id for r in rows)
    texts = Counter(" ".join(words(r)) for r in [*rows, *joined])
    document_words = by_label([r for r in rows if DOCUMENT_WORDS.intersection(words(r))], lambda _: "any")
    return {
        "rows": len(rows),
        "labels": by_label(rows, lambda _: "all")["all"],
        "domains": by_label(rows, lambda r: r.domain),
        "voices": by_label(rows, lambda r: r.voice),
        "other_languages": round(sum(r.voice in LANGUAGES for r in rows) / len(rows), 3),
        "length": {
            label: dict(zip(("p10", "p50", "p90"), np.percentile(v, [10, 50, 90]).round(1).tolist(), strict=True))
            | {"mean": round(float(v.mean()), 1)}
            for label, v in lengths.items()
            if len(v)
        },
        "probes": [asdict(p) for p in probes],
        "limits": {
            "length": {"worst": worst_length, "limit": LENGTH_LIMIT, "ok": worst_length <= LENGTH_LIMIT},
            "words": {"worst": worst_words, "limit": WORDS_LIMIT, "ok": worst_words <= WORDS_LIMIT},
        },
        "document_words": document_words.get("any", dict.fromkeys(LABELS, 0)),
        "leaking_words": [asdict(x) for x in leaning(rows, words, 6)[:40]],
        "watched_words": [asdict(x) for x in leaning(rows, words, 6) if x.term in watched and abs(x.z) >= 2],
        "openers": [asdict(x) for x in leaning(rows, opener(1), 5)[:15]],
        "openers_two": [asdict(x) for x in leaning(rows, opener(2), 4)[:15]],
        "frequent_openers": Counter(o for r in rows for o in opener(2)(r)).most_common(12),
        "duplicate_ids": sorted(i for i, n in ids.items() if n > 1),
        "duplicates": sorted(t for t, n in texts.items() if n > 1),
        "near_duplicates": near_duplicates(rows),
    }


def render(report: dict[str, Any], *, domains: bool) -> str:
    """The report for a terminal."""

    def leans(items: list[dict[str, Any]]) -> str:
        return "  ".join(f"{x['term']} {x['simple']}/{x['complex']}" for x in items) or "none"

    def pair(count: dict[str, int]) -> str:
        return f"{count['simple']}/{count['complex']}"

    lines = [
        f"rows {report['rows']}  simple/complex {pair(report['labels'])}  domains {len(report['domains'])}",
        f"other languages {report['other_languages']:.1%}",
        "voices   " + "  ".join(f"{name} {pair(count)}" for name, count in report["voices"].items()),
        *(f"length   {label}: {values}" for label, values in report["length"].items()),
        *(f"probe    {p['name']:<24} accuracy {p['accuracy']:.3f}  auc {p['auc']:.3f}" for p in report["probes"]),
        *(
            f"limit    {name}: {v['worst']:.3f} of {v['limit']} {'ok' if v['ok'] else 'EXCEEDED'}"
            for name, v in report["limits"].items()
        ),
        f"documents named (simple/complex)  {pair(report['document_words'])}",
        "leaking (simple/complex)  " + leans(report["leaking_words"]),
        "watched, z >= 2           " + leans(report["watched_words"]),
        "openers, one word         " + leans(report["openers"]),
        "openers, two words        " + leans(report["openers_two"]),
        "frequent openers          " + "  ".join(f"{term} {n}" for term, n in report["frequent_openers"]),
        f"duplicate ids {report['duplicate_ids']}",
        f"duplicates {report['duplicates']}",
        f"near duplicates {report['near_duplicates']}",
    ]
    if domains:
        lines += [f"domain   {name}: {pair(count)}" for name, count in report["domains"].items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; the exit status is 1 under --strict when a limit or uniqueness is broken."""
    parser = argparse.ArgumentParser(description="Does the surface of a question give its label away?")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--with", dest="joined", nargs="*", type=Path, default=[], help="train on these rows as well")
    parser.add_argument("--domains", action="store_true", help="counts for each domain")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args(arguments)
    other_shape = {"ambiguous.jsonl", "followups.jsonl", "paraphrases.jsonl"}
    files = options.files or sorted(p for p in QUESTIONS.glob("*.jsonl") if p.name not in other_shape)
    report = check(load(files), load(options.joined) if options.joined else [])
    text = json.dumps(report, ensure_ascii=False, indent=1) if options.json else render(report, domains=options.domains)
    sys.stdout.write(text + "\n")
    broken = not all(v["ok"] for v in report["limits"].values()) or report["duplicate_ids"] or report["duplicates"]
    return 1 if options.strict and broken else 0


if __name__ == "__main__":
    sys.exit(main())
