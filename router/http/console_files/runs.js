// Recent runs, a page at a time, and what is kept of each.
import { showAnswer } from "./answer.js";
import { explained, read } from "./api.js";
import { because, byId, make, problem, routeBadge, sentence, show, words } from "./dom.js";

let next = "";
let about = null;

export function wireRuns() {
  byId("runs-refresh").addEventListener("click", () => loadRuns());
  byId("runs-older").addEventListener("click", async () => {
    await loadRuns(next);
    byId("runs-title").focus();
  });
}

export function setUpRuns(told) {
  about = told;
  const lines = [];
  if (!told.admin) lines.push("Questions and traces are shown to callers with the role admin.");
  if (told.keeps !== "text") lines.push("The journal keeps no text of questions (journal.questions).");
  byId("runs-note").textContent = lines.join(" ");
}

export async function loadRuns(token = "") {
  const status = byId("runs-status");
  try {
    const page = await read(`/console/api/runs?page_token=${encodeURIComponent(token)}`);
    next = page.next_page_token;
    show(byId("runs-list"), ...page.runs.map(line));
    byId("runs-older").hidden = !next;
    status.textContent = page.runs.length ? "" : "No runs yet. Ask something above.";
  } catch (error) {
    const { what, way } = explained(error);
    status.textContent = `${sentence(what)} ${way}`;
  }
}

function line(run, index) {
  const at = new Date(run.created_at);
  const facts = [make("time", { datetime: run.created_at }, at.toLocaleString())];
  if (run.chosen) facts.push(routeBadge(run.chosen));
  if (run.route && run.route !== run.chosen) facts.push("→", routeBadge(run.route));
  if (run.complex_probability !== null) facts.push(`probability ${run.complex_probability.toFixed(2)}, threshold ${run.threshold.toFixed(2)}`);
  if (run.reason) facts.push(because(run.reason));
  facts.push(run.outcome ? words(run.outcome) : run.state);
  if (run.steps) facts.push(`${run.steps} ${run.steps === 1 ? "step" : "steps"}`);
  if (run.seconds !== null) facts.push(`${run.seconds.toFixed(2)} s`);
  if (run.cost_usd) facts.push(`$${run.cost_usd.toFixed(4)}`);
  if (run.rating !== null) facts.push(`rated ${run.rating}`);
  if (run.probe) facts.push("a golden question, asked by the gateway");
  const asked = run.question ?? (run.collection ? `(a question to ${run.collection})` : "(a question)");
  const item = make("li", {}, make("p", { class: "asked" }, asked),
    make("p", { class: "facts" }, ...facts.map((fact) => (fact instanceof Node ? fact : make("span", {}, fact)))));
  if (run.request_id !== null && about?.admin) item.append(...traceOf(run, `trace-${index}`));
  return item;
}

function traceOf(run, id) {
  const box = make("div", { id, class: "opened", hidden: true });
  const button = make("button", {
    type: "button", "aria-expanded": "false", "aria-controls": id,
    "aria-label": `Trace of ${(run.question ?? run.request_id).slice(0, 80)}`,
    onclick: async () => {
      const open = box.hidden;
      box.hidden = !open;
      button.setAttribute("aria-expanded", String(open));
      if (open && !box.hasChildNodes()) await loadTrace(run.request_id, box, id);
    },
  }, "Trace");
  return [button, box];
}

async function loadTrace(requestId, box, name) {
  show(box, make("p", { role: "status" }, "Reading …"));
  const list = make("ol", { class: "trace" });
  const more = make("button", { type: "button", hidden: true }, "More");
  let after = 0;
  const page = async () => {
    const trace = await read(`/console/api/runs/${encodeURIComponent(requestId)}?after=${after}`);
    list.append(...folded(trace.entries).map((entry) => traceEntry(entry, name)));
    after = trace.next_after;
    more.hidden = after === null;
    return trace;
  };
  more.addEventListener("click", () => page().catch((error) => box.append(failed(error))));
  try {
    const trace = await page();
    show(box, make("p", { class: "quiet" }, `Run ${trace.request_id}, ${trace.state}`), list, more);
  } catch (error) {
    show(box, failed(error));
  }
}

function failed(error) {
  const { what, way } = explained(error);
  return problem(what, way);
}

/** Entries with runs of pieces of the answer as one. */
function folded(entries) {
  const found = [];
  for (const entry of entries) {
    const last = found.at(-1);
    if (entry.kind === "token" && last?.kind === "token") {
      found[found.length - 1] = { ...last, text: "Pieces of the answer.", body: { text: (last.body.text ?? "") + (entry.body.text ?? "") } };
    } else found.push(entry);
  }
  return found;
}

function traceEntry(entry, name) {
  const item = make("li", { value: entry.sequence },
    make("strong", {}, words(entry.kind)), ` after ${entry.seconds.toFixed(3)} s. `, entry.text);
  const answer = entry.kind === "completed" ? entry.body.answer : null;
  if (answer && answer.text) {
    const [text, citations] = [make("div", { class: "answer" }), make("ol", { class: "citations" })];
    showAnswer(text, citations, answer.text, answer.citations ?? [], `${name}-${entry.sequence}`);
    item.append(text, citations);
  }
  item.append(make("details", {}, make("summary", {}, `All of ${words(entry.kind)} ${entry.sequence}`),
    make("pre", { tabindex: "0", role: "region", "aria-label": `Fields of ${words(entry.kind)} ${entry.sequence}` }, JSON.stringify(entry.body, null, 2))));
  return item;
}
