// How probabilities lie, what another threshold would have done, and how the choices turned out.
import { explained, read } from "./api.js";
import { byId, draw, make, sentence, share, show } from "./dom.js";

const BARS = 50;
let counts = null;
let admin = false;

export function wireRouting() {
  byId("routing-refresh").addEventListener("click", () => loadRouting());
  byId("try").addEventListener("input", tried);
  byId("save-form").addEventListener("submit", (event) => { event.preventDefault(); save(); });
}

export function setUpRouting(about) {
  admin = about.admin;
  byId("save-form").hidden = !admin;
  byId("save-not").hidden = admin;
}

export async function loadRouting({ keepSlider = false } = {}) {
  try {
    counts = await read("/console/api/routing");
  } catch (error) {
    const { what, way } = explained(error);
    byId("routing-about").textContent = `${sentence(what)} ${way}`;
    return;
  }
  if (!keepSlider) byId("try").value = String(Math.round(counts.policy.threshold * 100) / 100);
  const apart = [];
  if (counts.forced) apart.push(`${counts.forced} had their route forced`);
  if (counts.without_probability) apart.push(`for ${counts.without_probability} no model spoke`);
  byId("routing-about").textContent = counts.runs
    ? `The last ${counts.runs} ended runs, since ${new Date(counts.oldest).toLocaleString()}: ${counts.counted} with a choice by probability${apart.length ? `; ${apart.join(", ")}` : ""}.`
    : "No ended runs yet. Ask something above.";
  verdicts();
  table();
  tried();
}

const from = (threshold) => counts.bins.slice(Math.round(threshold * 100)).reduce((sum, count) => sum + count, 0);

function tried() {
  if (!counts) return;
  const threshold = Number(byId("try").value);
  const saved = counts.policy.threshold;
  byId("try-value").textContent = threshold.toFixed(2);
  byId("try").setAttribute("aria-valuetext", `${threshold.toFixed(2)}: ${share(from(threshold), counts.counted)} agentic`);
  byId("try-share").textContent = counts.counted
    ? `At ${threshold.toFixed(2)}, ${from(threshold)} of ${counts.counted} (${share(from(threshold), counts.counted)}) would have gone to the agentic route at once. ${counts.agentic} (${share(counts.agentic, counts.counted)}) did. Caps and budgets are not in this count.`
    : "There is nothing to count yet.";
  byId("save-button").disabled = Math.abs(threshold - saved) < 1e-9;
  byId("save-status").textContent = `In force: ${+saved.toFixed(4)}${counts.policy.version ? ` (version ${counts.policy.version})` : " (from the settings)"}.`;
  chart(threshold, saved);
}

function chart(threshold, saved) {
  const bars = Array.from({ length: BARS }, (_, bar) => counts.bins[2 * bar] + counts.bins[2 * bar + 1]);
  bars[BARS - 1] += counts.bins[100];
  const most = Math.max(1, ...bars);
  const label = `Histogram of complex probability of ${counts.counted} runs; the highest bar holds ${most}. The table below has the figures.`;
  const svg = draw("svg", { class: "bars", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": label });
  svg.append(draw("line", { x1: 0, x2: 1000, y1: 100, y2: 100 }));
  bars.forEach((count, bar) => {
    const height = (100 * count) / most;
    const kind = bar / BARS + 1e-9 >= threshold ? "agentic" : "standard";
    if (count) svg.append(draw("rect", { class: kind, x: (1000 * bar) / BARS + 1, width: 1000 / BARS - 2, y: 100 - height, height }));
  });
  const upright = (x, kind) => draw("line", { class: kind, x1: 1000 * x, x2: 1000 * x, y1: 0, y2: 100, "vector-effect": "non-scaling-stroke" });
  svg.append(upright(saved, "saved"), upright(threshold, "tried"));
  show(byId("histogram"), svg,
    make("div", { class: "scale", "aria-hidden": "true" }, ...["0", "0.25", "0.5", "0.75", "1"].map((each) => make("span", {}, each))),
    make("ul", { class: "legend" },
      make("li", { class: "standard" }, "■ below: standard"), make("li", { class: "agentic" }, "■ at or above: agentic"),
      make("li", {}, "│ tried"), make("li", {}, "┆ in force")));
}

function verdicts() {
  const about = {
    right: "the chosen route was the one needed",
    over: "agentic, where standard would have done",
    under: "standard, where agentic was needed",
    none: "nothing to judge by",
  };
  const tiles = Object.entries(about).map(([name, text]) =>
    make("div", {}, make("dt", {}, name === "none" ? "no verdict" : name), make("dd", {}, String(counts.verdicts[name]), make("small", {}, text))));
  tiles.push(make("div", {}, make("dt", {}, "escalated"), make("dd", {}, String(counts.escalated), make("small", {}, "handed over by the standard route"))));
  show(byId("verdicts"), ...tiles);
}

function table() {
  const rows = Array.from({ length: 10 }, (_, row) => {
    const end = row === 9 ? 101 : 10 * row + 10;
    const count = counts.bins.slice(10 * row, end).reduce((sum, each) => sum + each, 0);
    return make("tr", {}, make("th", { scope: "row" }, `${(row / 10).toFixed(1)} to ${((row + 1) / 10).toFixed(1)}`), make("td", { class: "number" }, String(count)));
  });
  show(byId("histogram-table"), make("table", {},
    make("caption", { class: "hidden" }, "Runs by complex probability"),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Probability"), make("th", { scope: "col", class: "number" }, "Runs"))),
    make("tbody", {}, ...rows)));
}

async function save() {
  const status = byId("save-status");
  const threshold = Number(byId("try").value);
  try {
    const { policy } = await read("/console/api/threshold", {
      method: "PUT", body: { threshold, expected_version: counts.policy.version },
    });
    counts.policy = policy;
    tried();
    status.textContent = `Saved: ${policy.threshold} is in force as version ${policy.version}.`;
  } catch (error) {
    const { what, way } = explained(error);
    if (error.reason === "POLICY_CHANGED") await loadRouting({ keepSlider: true });
    status.textContent = `Not saved: ${sentence(what)} ${way}`;
  }
}
