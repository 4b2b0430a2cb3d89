// A temporary chat. Only this page has its messages, and it sends the earlier ones each time.

/** Begin, with what app.js offers. */
export function openTemporary({ $, at, grow, key, make, now, on, place, send, toEnd }) {
  const form = at("aside"), text = at("text"), said = [];
  let asked = "", answer = null, early = "";
  const post = (words) => {
    const body = new FormData(), earlier = JSON.stringify(said.filter((one) => one.text));
    for (const [name, value] of Object.entries({ c: key, event: crypto.randomUUID(), text: words, earlier })) body.append(name, value);
    return send("/chat/send", body);
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const words = text.value.trim();
    if (!words || asked) return;
    asked = words;
    if (!(await post(words))) { asked = ""; return; }
    const item = make("article", { className: "item mine" });
    item.append(make("p", { className: "words", dir: "auto", textContent: words }));
    now.before(item);
    text.value = "";
    toEnd();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  });
  at("send").disabled = false; // before, the browser would put the text into the address
  $("[data-halt]", form).addEventListener("click", () => post("/stop"));
  on("end", (event) => {
    if (!asked) return;
    answer = event.outcome === "done" ? { role: "assistant", text: early, origin: event.origin } : null;
    said.push({ role: "user", text: asked }, ...(answer ? [answer] : []));
    asked = early = "";
  });
  on("temporary", (event) => {
    grow(() => place(event.html));
    if (asked) early += event.text;
    else if (answer) answer.text += event.text;
  });
}
