// Elements out of text. There is no way here to make markup of a string: what a model wrote stays text.

/** An element; `attributes` may hold `class`, `on…` listeners and any attribute; children are nodes or text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

/** The same for SVG. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, attributes, children);
  return element;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
}

export const byId = (id) => document.getElementById(id);

/** Replace all that an element holds. */
export function show(element, ...children) {
  element.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

export const words = (name) => String(name ?? "").replaceAll("_", " ");

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const REASONS = {
  classifier: "by words",
  evidence: "by words and evidence",
  forced: "as the request said",
  sticky: "as earlier in the session",
  cap: "since the share of agentic answers is used up",
  budget: "since time or money would not do",
  fallback: "since the classifier was silent",
  language: "since its language is unknown here",
  rollout: "by the rollout",
};

/** Why a route was chosen, for people. */
export const because = (reason) => REASONS[reason] ?? `by ${words(reason)}`;

export const routeBadge = (route) => make("span", { class: `badge ${route === "agentic" ? "agentic" : "standard"}` }, words(route));

export const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)}%` : "–");

/** What went wrong, and the way out. */
export const problem = (what, way) => make("p", { class: "error", role: "alert" }, make("strong", {}, sentence(what)), " ", way);

/** A text that ends as a sentence does. */
export const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

/** A link where an address is one of the web, else its text: `javascript:` and the like are never followed. */
export function address(uri, text) {
  let url = null;
  try { url = new URL(uri); } catch { /* a path of the corpus, for instance */ }
  if (url && (url.protocol === "https:" || url.protocol === "http:")) {
    return make("a", { href: url.href, rel: "noopener noreferrer", target: "_blank" }, text || uri);
  }
  return make("span", {}, text || uri);
}
