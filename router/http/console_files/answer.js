// An answer as text with marks where it is cited.
import { address, make, show } from "./dom.js";

/** Put an answer and its citations into the page; `name` makes the anchors of this answer its own. */
export function showAnswer(box, list, text, citations, name) {
  // Offsets count code points; a JavaScript string counts UTF-16 units.
  const points = Array.from(text);
  const clean = citations
    .map((citation, index) => ({ ...citation, number: index + 1 }))
    .filter((each) => Number.isInteger(each.answer_start) && each.answer_start >= 0 && each.answer_end <= points.length);
  const cuts = [...new Set([0, points.length, ...clean.flatMap((each) => [each.answer_start, each.answer_end])])].sort((a, b) => a - b);
  const parts = [];
  cuts.forEach((end, index) => {
    const start = index ? cuts[index - 1] : 0;
    if (end > start) {
      const piece = points.slice(start, end).join("");
      const covered = clean.some((each) => each.answer_start <= start && end <= each.answer_end);
      parts.push(covered ? make("mark", {}, piece) : piece);
    }
    for (const each of clean) if (each.answer_end === end && each.answer_end > each.answer_start) parts.push(mark(each, name));
  });
  show(box, ...parts);
  show(list, ...citations.map((each, index) => citationItem(each, index + 1, name)));
}

function mark({ number, title }, name) {
  const link = make("a", { href: `#${name}-${number}`, "aria-label": `Citation ${number}: ${title || "untitled"}` }, `[${number}]`);
  return make("sup", {}, link);
}

function citationItem(each, number, name) {
  const title = each.title || each.document_id || "untitled";
  return make("li", { id: `${name}-${number}`, tabindex: "-1" },
    each.uri ? address(each.uri, title) : title, " ",
    make("span", { class: "quiet" }, each.passage_id || ""),
    each.quote ? make("blockquote", {}, each.quote) : null);
}
