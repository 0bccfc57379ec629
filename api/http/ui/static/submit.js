// A file of examples becomes a data set at once, and is then the one that is chosen. Without this,
// lines are pasted.
"use strict";
(() => {
  const part = document.querySelector("[data-upload]");
  if (!part) return;
  const file = part.querySelector("input");
  const status = part.querySelector("[data-upload-status]");
  const datasets = document.getElementById("data.dataset");
  part.hidden = false;

  const say = (words, wrong) => {
    status.textContent = words;
    status.className = wrong ? "wrong" : "hint";
    file.setAttribute("aria-invalid", wrong ? "true" : "false");
  };

  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    say(`Handing over ${chosen.name} ...`);
    const zipped = chosen.name.toLowerCase().endsWith(".zip");
    const headers = { "Content-Type": zipped ? "application/zip" : "application/jsonl" };
    try {
      const answer = await fetch("/v1/datasets", { method: "POST", headers, body: chosen });
      const body = await answer.json();
      if (!answer.ok) { say(body.detail, true); return; }
      let option = [...datasets.options].find((each) => each.value === body.id);
      if (!option) datasets.add(option = new Option(`${body.inputs} inputs (${chosen.name})`, body.id));
      option.selected = true;
      document.getElementById("source-dataset").checked = true;
      datasets.focus();
    } catch (error) {
      say(`It could not be handed over: ${error.message}`, true);
    }
  });
})();
