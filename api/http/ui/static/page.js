// What pages need beside htmx. Without it they show the same, but do not move by themselves.
"use strict";
(() => {
  const root = document.documentElement;

  // Light or dark: the theme of the system, unless this browser has stored one.
  const THEMES = ["", "light", "dark"];
  const stored = () => { try { return localStorage.getItem("circinus-theme") || ""; } catch { return ""; } };
  const wear = (theme) => { theme ? root.setAttribute("data-theme", theme) : root.removeAttribute("data-theme"); };
  wear(stored());

  // Events of the service become `live:KIND` and `live` on the body: elements say what they are
  // refreshed by (hx-trigger="live:query.phase from:body"). Each fires at most once a second,
  // and the last one never gets lost. A hidden tab listens to nothing: browsers allow a server
  // six connections, whatever the number of tabs; visible again, it receives `live:again`.
  const PAUSE_MS = 1000;
  const waiting = new Set();
  let source = null, timer = null, toldAt = 0, dropped = false;

  function tell() {
    timer = null;
    toldAt = Date.now();
    const kinds = [...waiting];
    waiting.clear();
    for (const kind of kinds) htmx.trigger(document.body, `live:${kind}`);
    htmx.trigger(document.body, "live");
  }

  function happened(kind) {
    waiting.add(kind);
    timer ??= setTimeout(tell, Math.max(0, toldAt + PAUSE_MS - Date.now()));
  }

  function listen() {
    if (source || !document.body.dataset.events) return;
    source = new EventSource(document.body.dataset.events);
    source.onopen = () => { connected(true); if (dropped) happened("again"); dropped = false; };
    source.onerror = () => {
      connected(false);
      dropped = true;
      if (source.readyState === EventSource.CLOSED) { hang(); setTimeout(listen, 5000); }
    };
    source.addEventListener("reset", () => happened("again"));
    for (const kind of document.body.dataset.kinds.split(" ")) {
      source.addEventListener(kind, () => happened(kind));
    }
  }

  function hang() { source?.close(); source = null; }

  function connected(there) {
    for (const each of document.querySelectorAll("[data-connection]")) {
      each.dataset.connection = there ? "live" : "lost";
      each.textContent = there ? "Live" : "Not connected";
    }
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { hang(); dropped = true; } else listen();
  });

  document.addEventListener("DOMContentLoaded", () => {
    root.classList.add("scripted");
    const button = document.querySelector("[data-theme-button]");
    const name = () => { button.textContent = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" }[stored()]; };
    if (button) {
      button.hidden = false;
      name();
      button.addEventListener("click", () => {
        const next = THEMES[(THEMES.indexOf(stored()) + 1) % THEMES.length];
        try { localStorage.setItem("circinus-theme", next); } catch { /* it is for this page only */ }
        wear(next);
        name();
      });
    }
    if (!document.hidden) listen();
  });

  // A session that ended: the way of a page leads over the login.
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401) location.reload();
  });

  // What somebody has opened or has the focus in stays so when its part of the page is replaced.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const opened = [...event.detail.target.querySelectorAll("details[open][id]")].map((d) => d.id);
    if (opened.length) event.detail.circinusOpened = opened;
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    for (const id of event.detail.circinusOpened ?? []) document.getElementById(id)?.setAttribute("open", "");
  });

  // What a part of a drawing tells when it is pointed at, it tells below it when it has the focus.
  document.addEventListener("focusin", (event) => {
    const caption = event.target.closest("figure")?.querySelector("[data-told]");
    if (caption) caption.textContent = event.target.querySelector("title")?.textContent ?? "";
  });

  // Whoever points at a plan in a drawing sees its row, and the other way round.
  function point(event) {
    const at = event.target.closest?.("[data-plan], [data-row]");
    const plan = at && (at.dataset.plan ?? at.dataset.row);
    for (const each of document.querySelectorAll(".pointed")) each.classList.remove("pointed");
    if (!plan) return;
    for (const each of document.querySelectorAll("[data-plan], [data-row]")) {
      if ((each.dataset.plan ?? each.dataset.row) === plan) each.classList.add("pointed");
    }
  }
  document.addEventListener("pointerover", point);
  document.addEventListener("focusin", point);

  // Sliders say what they are at, also where they are put back.
  document.addEventListener("reset", (event) => setTimeout(() => {
    for (const each of event.target.querySelectorAll("[data-shows]")) each.dispatchEvent(new Event("input", { bubbles: true }));
  }));
  document.addEventListener("input", (event) => {
    const out = event.target.dataset?.shows && document.getElementById(event.target.dataset.shows);
    if (out) out.textContent = event.target.dataset.words.replace("%", Number(event.target.value));
  });
})();
