// Put the sections together: who is asking comes first, then each section reads what it shows.
import { explained, hasKey, read, useKey, whenKeyIsWanted } from "./api.js";
import { setUpAsking, wireAsking } from "./ask.js";
import { loadCorpus, wireCorpus } from "./corpus.js";
import { byId, problem, show } from "./dom.js";
import { loadRouting, setUpRouting, wireRouting } from "./routing.js";
import { loadRuns, setUpRuns, wireRuns } from "./runs.js";

function say(error) {
  const { what, way } = explained(error);
  show(byId("problem"), problem(what, way));
}

function sections(shown) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = !shown;
}

async function start() {
  show(byId("problem"));
  byId("forget-key").hidden = !hasKey();
  let about;
  try {
    about = await read("/console/api/about");
  } catch (error) {
    if (error.status !== 401) say(error);
    return;
  }
  byId("key-form").hidden = true;
  sections(true);
  byId("whom").textContent = `tenant ${about.tenant}${about.admin ? "" : ", reading only"}`;
  byId("release").textContent = `Release ${about.version}.`;
  setUpAsking(about, () => { loadRuns(); loadRouting({ keepSlider: true }); });
  setUpRuns(about);
  setUpRouting(about);
  await Promise.all([loadRuns(), loadRouting(), loadCorpus()]);
}

wireAsking();
wireRuns();
wireRouting();
wireCorpus();
whenKeyIsWanted((refusal) => {
  // Who has given no key yet is asked for one, and has done nothing wrong.
  if (hasKey()) say(refusal);
  if (!byId("key-form").hidden) return;
  sections(false);
  byId("key-form").hidden = false;
  byId("key").focus();
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value.trim());
  byId("key").value = "";
  start();
});
byId("forget-key").addEventListener("click", () => { useKey(""); location.reload(); });
start();
