// What can be searched, and what the gateway leans on.
import { explained, read } from "./api.js";
import { byId, make, sentence, show } from "./dom.js";

let next = "";
let rows = [];

export function wireCorpus() {
  byId("corpus-refresh").addEventListener("click", () => loadCorpus());
  byId("collections-more").addEventListener("click", () => collections(next));
}

export async function loadCorpus() {
  await Promise.all([dependencies(), collections("")]);
}

async function dependencies() {
  try {
    const { serving, dependencies: states } = await read("/console/api/dependencies");
    byId("serving").textContent = serving ? "The gateway serves." : "The gateway can't serve now: something essential is down.";
    show(byId("dependencies"), ...Object.entries(states).map(([name, up]) =>
      make("li", {}, name, " ", make("span", { class: up ? "good" : "bad" }, up ? "✓ up" : "✗ down"))));
  } catch (error) {
    const { what, way } = explained(error);
    byId("serving").textContent = `${sentence(what)} ${way}`;
    show(byId("dependencies"));
  }
}

async function collections(token) {
  const box = byId("collections");
  try {
    const page = await read(`/console/api/collections?page_token=${encodeURIComponent(token)}`);
    next = page.next_page_token;
    rows = token ? [...rows, ...page.collections] : page.collections;
  } catch (error) {
    const { what, way } = explained(error);
    show(box, make("p", {}, `${sentence(what)} ${way}`));
    return;
  }
  byId("collections-more").hidden = !next;
  show(byId("collections-known"), ...rows.map((each) => make("option", { value: each.name })));
  if (!rows.length) {
    show(box, make("p", {}, "No collections yet. Fill one with ", make("code", {}, "pointsman ingest FOLDER"), "."));
    return;
  }
  const count = (number) => make("td", { class: "number" }, number === null ? "–" : number.toLocaleString());
  show(box, make("table", {},
    make("caption", { class: "hidden" }, "Collections"),
    make("thead", {}, make("tr", {}, ...[["Name", ""], ["Documents", "number"], ["Passages", "number"], ["Embedder", "wide"]].map(([name, kind]) =>
      make("th", { scope: "col", class: kind || null }, name)))),
    make("tbody", {}, ...rows.map((each) =>
      make("tr", {}, make("th", { scope: "row" }, each.name, each.table ? make("span", { class: "quiet" }, " (your table)") : null), count(each.documents), count(each.passages), make("td", { class: "wide" }, each.embedder))))));
}
