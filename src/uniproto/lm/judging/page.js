"use strict";
(async () => {
  const PER_PAGE = 25;
  const $ = (selector) => document.querySelector(selector);
  const number = new Intl.NumberFormat("en");

  // What a model wrote enters the page as text only: there is no innerHTML in this file.
  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  async function unpacked(letters) {
    const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  $("#theme").addEventListener("click", () => {
    const root = document.documentElement;
    const theme = root.dataset.theme || (prefersDark.matches ? "dark" : "light");
    root.dataset.theme = theme === "dark" ? "light" : "dark";
  });

  const items = await unpacked($("#data").textContent);
  const SEARCHED = ["id", "question", "gold", "predicted", "output", "program", "printed", "program_output"];
  const texts = new Array(items.length); // made when first searched: it doubles the memory

  function searched(place) {
    texts[place] ??= SEARCHED.map((name) => items[place][name] ?? "").join("\n").toLowerCase();
    return texts[place];
  }

  const FILTERS = { "#dataset": "dataset", "#verdict-is": "verdict", "#how": "how" };
  for (const [selector, name] of Object.entries(FILTERS)) {
    const counts = new Map();
    for (const item of items) counts.set(item[name], (counts.get(item[name]) ?? 0) + 1);
    for (const [value, count] of counts) {
      $(selector).append(make("option", { value, textContent: `${value} (${number.format(count)})` }));
    }
    $(selector).addEventListener("change", () => show(0));
  }

  function matching() {
    const wanted = Object.entries(FILTERS).map(([selector, name]) => [name, $(selector).value]);
    const words = $("#search").value.toLowerCase().trim();
    const found = [];
    items.forEach((item, place) => {
      if (wanted.some(([name, value]) => value && item[name] !== value)) return;
      if (words && !searched(place).includes(words)) return;
      found.push(place);
    });
    return found;
  }

  function term(name, value) {
    if (value === undefined) return [];
    return [make("dt", { textContent: name }), make("dd", {}, make("bdi", { textContent: value }))];
  }

  function more(title, text, open = false) {
    if (text === undefined) return null;
    return make("details", { open }, make("summary", { textContent: title }), make("pre", { textContent: text }));
  }

  function card(item) {
    const right = item.verdict === "right";
    const scores = item.scores && Object.entries(item.scores).map(([word, score]) => `${word} ${score.toFixed(3)}`).join(",  ");
    const failed = item.program_output !== undefined && item.program_output !== item.program;
    const cut = item.stopped === "length" ? ", cut off" : "";
    return make("li", {},
      make("article", { className: right ? "answer right" : "answer" },
        make("header", {},
          make("span", { className: "word", textContent: item.verdict }),
          make("span", { className: "tag", textContent: item.dataset }),
          make("span", { className: "tag", textContent: item.how }),
          make("span", { className: "quiet push", textContent: item.id })),
        make("p", { className: "asked", dir: "auto", textContent: item.question }),
        make("dl", {},
          ...term("right answer", item.gold),
          ...term("model's answer", item.predicted ?? "none"),
          ...term("why", item.unreadable),
          ...term("log-likelihoods", scores),
          ...term("program", item.program_status),
          ...term("printed", item.printed)),
        more("program", item.program),
        failed ? more("what it wrote when asked for a program", item.program_output) : null,
        item.output === item.program ? null : more(`what the model wrote${cut}`, item.output)));
  }

  let found = [];
  let page = 0;

  function show(wanted, again = true) {
    if (again) found = matching();
    const pages = Math.max(1, Math.ceil(found.length / PER_PAGE));
    page = Math.min(Math.max(0, wanted), pages - 1);
    const shown = found.slice(page * PER_PAGE, (page + 1) * PER_PAGE);
    $("#list").replaceChildren(...shown.map((place) => card(items[place])));
    $("#count").textContent = found.length === items.length
      ? number.format(items.length)
      : `${number.format(found.length)} of ${number.format(items.length)}`;
    $("#page").textContent = `page ${number.format(page + 1)} of ${number.format(pages)}`;
    $("#previous").disabled = page === 0;
    $("#next").disabled = page === pages - 1;
    $("#none").hidden = found.length > 0;
  }

  function turn(by) {
    show(page + by, false);
    $("#items").scrollIntoView();
  }

  let waiting = 0;
  $("#search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => show(0), 150);
  });
  $("#previous").addEventListener("click", () => turn(-1));
  $("#next").addEventListener("click", () => turn(1));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      $("#search").focus();
    }
  });
  show(0);
  document.documentElement.dataset.items = "ready";
})();
