// Ask a question and watch what the gateway does with it.
import { showAnswer } from "./answer.js";
import { call, events, explained } from "./api.js";
import { address, because, byId, capital, make, problem, routeBadge, show, words } from "./dom.js";

const STEPS = 400;
let running = null;
let onEnd = () => {};
let runsGoOn = false;

export function setUpAsking(about, afterwards) {
  onEnd = afterwards;
  runsGoOn = about.runs_go_on;
  byId("question").maxLength = about.question_chars;
  byId("stop-button").textContent = runsGoOn ? "Leave" : "Stop";
}

export function wireAsking() {
  const form = byId("ask-form");
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  byId("stop-button").addEventListener("click", stop);
  byId("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(); }
  });
  byId("ask").addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
}

function stop() {
  // The gateway notices that its reader has gone and ends the run, down to the model's call.
  running?.abort();
}

async function ask() {
  if (running) return;
  running = new AbortController();
  const view = begin();
  try {
    const response = await call("/query", { method: "POST", body: question(), accept: "text/event-stream", signal: running.signal });
    for await (const { event, data } of events(response)) view.take(event, data);
    view.ended();
  } catch (error) {
    view.broke(error, running.signal.aborted);
  } finally {
    running = null;
    busy(false);
    onEnd();
  }
}

function question() {
  const body = { question: byId("question").value, route: byId("route").value };
  const collection = byId("collection").value.trim();
  const threshold = byId("ask-threshold").value;
  if (collection) body.collection = collection;
  if (threshold !== "") body.threshold = Number(threshold);
  return body;
}

function busy(on) {
  const [askButton, stopButton] = [byId("ask-button"), byId("stop-button")];
  const held = document.activeElement;
  askButton.disabled = on;
  stopButton.disabled = !on;
  byId("answer").setAttribute("aria-busy", String(on));
  // A button that is switched off loses the focus; it goes to the one that can be used now.
  if (held === askButton && on) stopButton.focus();
  if (held === stopButton && !on) askButton.focus();
}

function begin() {
  byId("live").hidden = false;
  for (const id of ["decision", "steps", "answer", "notices", "citations"]) show(byId(id));
  byId("citations-title").hidden = true;
  byId("columns").hidden = true;
  byId("ask-status").textContent = "Working …";
  busy(true);
  return new View();
}

class View {
  #text = document.createTextNode("");
  #complete = false;
  #failed = false;

  constructor() { byId("answer").append(this.#text); }

  take(kind, data) {
    const body = data[kind] ?? {};
    if (kind !== "error") byId("columns").hidden = false;
    if (kind === "token") { this.#text.data += body.text; return; }
    if (kind === "error") { this.#fail({ what: data.error.message, way: "Try again; the section Corpus and dependencies tells what is away." }); return; }
    if (kind === "completed") { this.#completed(body); return; }
    if (kind === "citation") return;
    if (kind === "decision") { this.#text.data = ""; showDecision(body); }
    const steps = byId("steps");
    if (steps.childElementCount < STEPS) steps.append(step(kind, data.text, body));
  }

  #completed(answer) {
    this.#complete = true;
    showAnswer(byId("answer"), byId("citations"), answer.answer, answer.citations, "citation");
    byId("citations-title").hidden = answer.citations.length === 0;
    if (!answer.answer) byId("answer").append(make("span", { class: "quiet" }, "No answer."));
    const lines = answer.notices.map((notice) => make("p", {}, notice));
    if (answer.clarification) {
      lines.push(make("p", {}, make("strong", {}, "It asks back: "), answer.clarification, " Ask again with that said in the question."));
    }
    show(byId("notices"), ...lines);
    const cost = answer.usage.cost_usd ? `, $${answer.usage.cost_usd.toFixed(4)}` : "";
    const count = `${answer.steps} ${answer.steps === 1 ? "step" : "steps"}`;
    byId("ask-status").textContent =
      `${capital(words(answer.outcome))} (${words(answer.stop_reason)}) by the ${answer.route} route: ${count}, ${answer.timings.total_seconds.toFixed(2)} s${cost}, ${words(answer.answer_source)}.`;
  }

  #fail({ what, way }) {
    this.#failed = true;
    byId("ask-status").textContent = "It failed.";
    show(byId("notices"), problem(what, way));
  }

  ended() {
    if (!this.#complete && !this.#failed) this.#fail({ what: "The stream ended before the answer did.", way: "Ask again." });
  }

  broke(error, stopped) {
    if (!stopped) { this.#fail(explained(error)); return; }
    byId("ask-status").textContent = runsGoOn ? "Left. The run goes on; find it under Recent runs." : "Stopped. The run was ended.";
  }
}

function showDecision(decision) {
  const seen = decision.complex_probability === null
    ? "no model spoke"
    : `probability ${decision.complex_probability.toFixed(3)} against threshold ${decision.threshold.toFixed(3)}`;
  show(byId("decision"), make("strong", {}, "Route "), routeBadge(decision.route), ` ${because(decision.reason)}: ${seen}`);
}

function step(kind, text, body) {
  const item = make("li", {}, text || words(kind));
  if (kind === "passages" && body.passages.length) {
    item.append(make("ul", { class: "found" }, ...body.passages.slice(0, 20).map((found) =>
      make("li", {}, found.uri ? address(found.uri, found.title || found.passage_id) : found.title || found.passage_id,
        ` (${found.score.toFixed(2)}${found.verdict && found.verdict !== "pass" ? `, ${found.verdict}` : ""})`))));
  }
  return item;
}
