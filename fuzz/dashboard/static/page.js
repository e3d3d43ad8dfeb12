"use strict";
// Copies a script, and loads a page that says so again when what it shows has changed.

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(text);
    button.textContent = "Selected: press Ctrl+C";
  }
});

const live = document.querySelector("main")?.dataset.live;
if (live) {
  const wait_ms = 2000;
  let asked = false;
  const busy = () => document.activeElement?.closest("main form") || !getSelection().isCollapsed;
  const load = async () => {
    if (busy()) return setTimeout(load, wait_ms);
    asked = false;
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.querySelector("main");
    const open = [...main.querySelectorAll("details[open]")].map((one) => one.id);
    main.replaceChildren(...fresh.querySelector("main").childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    document.title = fresh.title;
  };
  new EventSource(live).addEventListener("changed", () => {
    if (asked) return;
    asked = true;
    setTimeout(load, wait_ms);
  });
}
