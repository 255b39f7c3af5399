"""The evidence features by name, in their order, each with the reason it is there.

Source: Carmel, Yom-Tov, "Estimating the query difficulty for information retrieval", 2010 (score shape, agreement of
rankers, stability under perturbed queries).
"""

from __future__ import annotations

_SHAPE: tuple[tuple[str, str], ...] = (
    ("dense_best", "how near the nearest passage is"),
    ("dense_lead", "lead of the nearest passage over the second: one stands out, or many are alike"),
    ("dense_fall_5", "lead of the nearest passage over the fifth"),
    ("dense_shown", "mean nearness of the five nearest"),
    ("dense_beyond", "how much nearer the five nearest are than the next five"),
    ("lexical_best", "the best BM25 score against the most the question could earn"),
    ("lexical_lead", "lead of the best BM25 score over the second"),
    ("lexical_fall_5", "lead of the best BM25 score over the fifth"),
    ("fused_best", "1 where both legs agree on the best passage"),
    ("fused_lead", "lead of the best fused score over the second"),
    ("fused_fall_5", "lead of the best fused score over the fifth"),
    ("fused_cut", "gap between the last passage shown and the first left out"),
    ("fused_tail", "fall of the fused score from the fifth to the tenth: is there as good beyond the cut"),
    ("legs_share_passages", "overlap of the legs' five best passages"),
    ("legs_share_documents", "overlap of the documents of the legs' best passages"),
    ("legs_agree", "whether both legs lead with the same document"),
    ("spread", "entropy of the weight over documents"),
    ("documents_shown", "number of documents among the passages shown"),
    ("first_share", "share of the first document among the passages shown"),
    ("first_lead", "lead of the first document over the next"),
    ("alike", "mean similarity of the passages shown to each other"),
)
_COVERAGE: tuple[tuple[str, str], ...] = (
    ("covered_first", "weight of the question's terms in the first passage"),
    ("covered_passage", "the most that one passage covers"),
    ("covered_shown", "what the passages shown cover together"),
    ("covered_all", "what all candidates cover together"),
    ("covered_document", "the most that one document covers"),
    ("covered_first_document", "what the first document covers"),
    ("gain_shown", "what the passages shown add to the best passage"),
    ("gain_documents", "what other documents add to the best one"),
    ("gain_pair", "what the best second document adds to the best one"),
    ("document_lead", "lead of the best covering document over the next"),
    ("covered_beyond", "terms that only candidates beyond the cut hold"),
    ("missing_most", "weight of the heaviest term that no candidate holds"),
    ("rare_shown", "share of the three rarest terms that the passages shown hold"),
    ("rare_together", "the most of the three rarest terms that one passage holds"),
    ("unseen", "weight of terms that the collection does not hold at all"),
    ("terms", "number of terms"),
    ("rarest", "idf of the rarest term: names are rare"),
    ("rarity", "mean idf: chat and background have unusual words"),
    ("title_covered", "weight of terms in the title of a passage shown"),
    ("titles_hit", "documents whose titles hold a term"),
    ("parts_loss", "what the parts' terms lose when all must be covered by one document"),
    ("parts_loss_most", "the most that one part's terms lose when one document must cover all"),
)
_PARTS: tuple[tuple[str, str], ...] = (
    ("homes", "documents that are the best one for some part"),
    ("loss", "what the parts lose when all must be met by one document"),
    ("loss_most", "the most that one part loses when all must be met by one document"),
    ("pair", "what two documents gain over one"),
    ("near", "how near the parts come to anything"),
    ("least", "how near the part comes that comes least near"),
    ("shown_first", "share of parts whose best passage is of a document shown"),
    ("shown_three", "share of the parts' three best passages that are of a document shown"),
    ("same", "share of parts whose best passage is of the first document"),
    ("beyond", "how much nearer the parts come beyond the passages shown"),
    ("beyond_most", "how much nearer the part that gains most comes beyond the passages shown"),
)
_POINTING: tuple[tuple[str, str], ...] = (
    ("parts", "number of parts"),
    ("left_over", "what of the question's vector the first document's two nearest passages leave unexplained"),
    ("left_over_shown", "what of the question's vector the passages shown leave unexplained"),
    ("explained_elsewhere", "what a passage of another document explains in addition"),
    ("explained_within", "what another passage of the first document explains in addition"),
    ("second_same", "whether the question less the first passage still leads to the first document"),
    ("second_near", "how near the question less the first passage comes to anything"),
    ("second_beyond", "how much nearer the question less the first passage comes beyond the passages shown"),
    (
        "names_title",
        "the most of another document's title that the first document's passages name and the question does not",
    ),
    ("titles_named", "documents that the first document's passages name and the question does not"),
    ("title_asked", "share of the first document's title that the question names"),
)
KINDS = (("piece", "a part"), ("rest", "the question with a part toned down"), ("word", "a content word"))
"""The kinds of parts that _PARTS are computed for."""

FEATURES: tuple[tuple[str, str], ...] = (
    *_SHAPE,
    *_COVERAGE,
    *((f"{kind}_{name}", f"{what}: {reason}") for kind, what in KINDS for name, reason in _PARTS),
    *_POINTING,
)
"""Names of the features in their order, and why each is there."""
NAMES: tuple[str, ...] = tuple(name for name, _ in FEATURES)
GROUPS: dict[str, str] = {
    name: group
    for group, features in (
        ("scores of the first search", _SHAPE),
        ("words covered", _COVERAGE),
        ("parts of the question", tuple((f"{kind}_{name}", "") for kind, _ in KINDS for name, _ in _PARTS)),
        ("where passages point", _POINTING),
    )
    for name, _ in features
}
"""The group of each feature, as people are told of it."""
