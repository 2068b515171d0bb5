(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { items, prototypes, pictures } = data;
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const cards = $$("#cards .card");
  const figure = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

  // Every piece of text enters the page as text: there is no innerHTML in this file.
  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  function name(kind, code) {
    return code === null || code === undefined || !data.coverage[kind] ? null : data.coverage[kind][code];
  }

  function tags(thing) {
    return [data.kind, "group"]
      .map((kind) => name(kind, thing[kind]))
      .filter((text) => text !== null)
      .map((text) => make("span", { className: "tag" }, make("bdi", { textContent: text })));
  }

  function item(place) {
    const at = (column) => (items[column] && items[column].length ? items[column][place] : null);
    return {
      place, row: at("row"), name: at("name"), text: at("text"), cost: at("cost"),
      [data.kind]: at(data.kind), group: at("group"), picture: at("picture"),
    };
  }

  // Pictures: each is in the page once, and is put where it is wanted when it comes into view.

  function showPicture(image) {
    const place = image.dataset.picture;
    if (image.src || place === undefined) return;
    image.decoding = "async";
    image.addEventListener("load", () => {
      image.classList.toggle("pixels", Math.max(image.naturalWidth, image.naturalHeight) <= 48);
    });
    image.src = pictures[place];
  }

  const watcher = new IntersectionObserver((seen) => {
    for (const entry of seen) {
      if (entry.isIntersecting) { showPicture(entry.target); watcher.unobserve(entry.target); }
    }
  }, { rootMargin: "600px" });
  $$("img[data-picture]").forEach((image) => watcher.observe(image));
  addEventListener("beforeprint", () => $$("img[data-picture]").forEach(showPicture));

  function picture(place, alt, className = "") {
    const image = make("img", { alt, className });
    image.dataset.picture = place;
    showPicture(image);
    return image;
  }

  const { colours, isDark, views } = uniprotoCharts;
  window.uniproto = { views };  // for the console
  uniprotoCharts.onTheme(() => drawAll());

  function draw(id, extra = {}, renderer = "svg") {
    return uniprotoCharts.draw(id, data.charts[id], extra, renderer, id === "map" ? () => {} : chartTip);
  }

  // The little box that follows the pointer

  const tip = $("#tip");

  function showTip(event, ...children) {
    if (!children.length) { tip.hidden = true; return; }
    tip.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
    tip.hidden = false;
    const { clientX: x, clientY: y } = event;
    const { offsetWidth: w, offsetHeight: h } = tip;
    tip.style.left = `${x + 16 + w > innerWidth ? Math.max(4, x - w - 12) : x + 16}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - h - 6))}px`;
  }

  function chartTip(handler, event, mark, value) {
    if (value === null || value === undefined || value === "") { showTip(event); return; }
    const pairs = typeof value === "object" ? Object.entries(value) : [["", value]];
    showTip(event, ...pairs.map(([key, text]) => make("p", {}, key ? `${key}: ` : "", make("bdi", { textContent: text }))));
  }

  function line(...parts) {
    return make("p", { className: "numbers" }, ...parts.map((part) => (typeof part === "string" ? make("span", { textContent: part }) : part)));
  }

  function tipOfItem(place) {
    const one = item(place);
    return [
      one.picture !== null ? picture(one.picture, "") : null,
      one.text ? make("p", { textContent: one.text, dir: "auto" }) : null,
      line(one.name ? make("bdi", { textContent: one.name }) : `target row ${one.row}`, one.cost === null ? null : `cost ${figure.format(one.cost)}`, ...tags(one)),
    ];
  }

  function tipOfPrototype(place) {
    const one = prototypes[place];
    const text = $(".text", cards[place]);
    return [
      one.picture !== null ? picture(one.picture, "") : null,
      text ? make("p", { textContent: shorten(text.textContent, 220), dir: "auto" }) : null,
      line(make("b", { textContent: `${data.noun} ${one.rank}` }), `represents ${one.targets}`, ...tags(one)),
    ];
  }

  function shorten(text, most) {
    const letters = [...text.slice(0, 2 * most)];
    return letters.length > most ? `${letters.slice(0, most).join("")}…` : text.slice(0, 2 * most);
  }

  // The map

  // Ten colours that people with any colour vision tell apart (Petroff, 2021), the greys last; lighter on dark.
  const light = ["#3f90da", "#ffa90e", "#bd1f01", "#832db6", "#92dadd", "#a96b59", "#e76300", "#b9ac70", "#94a4a2", "#717581"];
  const dark = ["#5aa9ef", "#ffb733", "#ff6a50", "#bd84ee", "#a9e6e8", "#d09a86", "#ff9142", "#d3c78a", "#b7c4c2", "#8f95a3"];
  const steps = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"];  // cividis
  const paint = $("#paint");
  let chosen = null;
  let matching = prototypes.map((_, place) => place);

  if (paint) {
    const kinds = Object.keys(data.coverage).concat(Object.keys(data.paints));
    if (items.cost.some((cost) => cost !== null)) kinds.push("cost");
    paint.append(make("option", { value: "", textContent: "nothing" }), ...kinds.map((kind) => make("option", { value: kind, textContent: kind })));
    if (Object.keys(data.coverage).length) paint.value = kinds[0];
    paint.addEventListener("change", () => { refreshMap(); });
  }

  function hues() {
    const by = paint ? paint.value : "";
    const grey = colours().grey;
    if (by === "") return { of: () => grey, keys: [] };
    if (by === "cost") {
      const sorted = items.cost.slice(0, data.drawn).filter((cost) => cost !== null).sort((a, b) => a - b);
      const cuts = steps.slice(1).map((_, place) => sorted[Math.floor(((place + 1) * sorted.length) / steps.length)]);
      const ends = [figure.format(sorted[0]), figure.format(sorted[sorted.length - 1])];
      return {
        of: (thing, cost) => (cost === undefined || cost === null ? grey : steps[cuts.filter((limit) => cost >= limit).length]),
        keys: steps.map((hue, place) => [hue, place === 0 ? `close to its ${data.noun} (${ends[0]})` : place === steps.length - 1 ? `far (${ends[1]})` : ""]),
      };
    }
    const painted = data.paints[by];
    if (painted && painted.ordered) {
      const last = Math.max(1, painted.names.filter((text) => text !== "missing").length - 1);
      const step = (code) => steps[Math.round((code * (steps.length - 1)) / last)];
      const ends = [painted.names[0].split(" – ")[0], painted.names[last].split(" – ").pop()];
      return {
        of: (thing) => (thing[by] === null || thing[by] === undefined ? grey : step(thing[by])),
        keys: steps.map((hue, place) => [hue, place === 0 ? ends[0] : place === steps.length - 1 ? ends[1] : ""]),
      };
    }
    const counts = new Map();
    // A target of unknown source is grey, and only the prototypes have colours.
    const coded = painted ? painted.items : items[by].slice(0, data.drawn);
    const known = coded.some((code) => code !== null) ? coded : prototypes.map((one) => one[by]);
    known.forEach((code) => counts.set(code, (counts.get(code) || 0) + 1));
    const codes = [...counts.keys()].filter((code) => code !== null);
    const plain = isDark() ? dark : light;
    const palette = known === coded ? plain : sourceColours(codes.length, plain);
    const most = codes.length > palette.length ? palette.length - 2 : palette.length;
    const shown = codes.sort((a, b) => counts.get(b) - counts.get(a)).slice(0, most).sort((a, b) => a - b);
    const hue = new Map(shown.map((code, place) => [code, palette[place]]));
    const keys = shown.map((code) => [hue.get(code), painted ? painted.names[code] : name(by, code)]);
    if (shown.length < codes.length) keys.push([grey, `${codes.length - shown.length} others`]);
    return { of: (thing) => hue.get(thing[by]) || grey, keys };
  }

  // Every source has a colour; the greys are left to the targets.
  function sourceColours(count, plain) {
    const more = Array.from({ length: count }, (_, place) => `hsl(${Math.round(place * 137.5) % 360} 55% ${isDark() ? 65 : 42}%)`);
    return [...plain.slice(0, -2), ...more].slice(0, Math.max(count, 1));
  }

  function swatch(colour) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("width", "10"); svg.setAttribute("height", "10"); svg.setAttribute("aria-hidden", "true");
    const circle = document.createElementNS(space, "circle");
    for (const [key, value] of [["cx", 5], ["cy", 5], ["r", 5], ["fill", colour]]) circle.setAttribute(key, value);
    svg.append(circle);
    return svg;
  }

  function mapData() {
    const hue = hues();
    const by = paint ? paint.value : "";
    const painted = data.paints[by];
    const only = filters();
    const fits = (place) => Object.entries(only).every(([kind, code]) => items[kind][place] === code || items[kind][place] === null);
    const targets = [];
    for (let place = 0; place < data.drawn; place += 1) {
      if (!fits(place)) continue;
      const codes = { [data.kind]: items[data.kind][place], group: items.group[place], [by]: painted ? painted.items[place] : null };
      if (!painted && by in items) codes[by] = items[by][place];
      targets.push({ i: place, x: items.x[place], y: items.y[place], hue: hue.of(codes, items.cost[place]) });
    }
    const ink = colours().ink;
    const shown = matching.map((place) => ({
      p: place, x: prototypes[place].x, y: prototypes[place].y,
      hue: hue.keys.length && by !== "cost" ? hue.of(painted ? { [by]: painted.prototypes[place] } : prototypes[place]) : colours().blue,
    }));
    $("#legend").replaceChildren(...$$("#legend .shape"), ...hue.keys.map(([colour, text]) => make("li", {}, swatch(colour), make("bdi", { textContent: text, title: text }))));
    return { targets, prototypes: shown, ink };
  }

  function chosenData() {
    if (chosen === null) return { lit: [], chosen: [] };
    const one = prototypes[chosen];
    return {
      lit: one.lights.map((place) => ({ i: place, x: items.x[place], y: items.y[place] })),
      chosen: [{ p: chosen, x: one.x, y: one.y }],
    };
  }

  // A map of places keeps its proportions: its height follows, or there is room around it.
  function toScale(extra, width) {
    const layers = data.charts.map.layer;
    const ends = ["x", "y"].map((side) => layers[0].encoding[side].scale.domain);
    const [wide, high] = ends.map((pair, side) => (pair[1] - pair[0]) * (side ? 1 : data.degree));
    extra.height = Math.round(Math.min(520, Math.max(200, (width * high) / wide)));
    const ratio = (wide / width) / (high / extra.height);
    const domains = ends.map((pair, side) => {
      const room = ((pair[1] - pair[0]) / 2) * (Math.max(1, side ? ratio : 1 / ratio) - 1);
      return [pair[0] - room, pair[1] + room];
    });
    const scaled = (channel, domain) => ({ ...channel, scale: { ...channel.scale, domain } });
    extra.layer = layers.map((one) => ({ ...one, encoding: { ...one.encoding, x: scaled(one.encoding.x, domains[0]), y: scaled(one.encoding.y, domains[1]) } }));
  }

  async function drawMap() {
    if (!data.charts.map) return;
    const { targets, prototypes: shown } = mapData();
    const params = data.charts.map.params;
    const extra = { datasets: { targets, prototypes: shown, ...chosenData() } };
    // A finger scrolls the page and must not be caught by the map.
    if (params && matchMedia("(pointer: coarse)").matches) extra.params = params.filter((one) => one.name !== "zoom");
    if (data.degree) toScale(extra, $("#chart-map").clientWidth);
    const view = await draw("map", extra, "canvas");
    view.signal("dim", chosen !== null);
    view.addEventListener("click", (event, mark) => {
      if (mark && mark.datum && mark.datum.p !== undefined) choose(mark.datum.p);
      else if (mark && mark.datum && mark.datum.i !== undefined) choose(owner(mark.datum.i));
    });
    view.addEventListener("mousemove", (event, mark) => {
      const datum = mark && mark.datum;
      if (datum && datum.p !== undefined) showTip(event, ...tipOfPrototype(datum.p));
      else if (datum && datum.i !== undefined) showTip(event, ...tipOfItem(datum.i));
      else showTip(event);
    });
    view.addEventListener("mouseout", (event) => showTip(event));
    await view.runAsync();
    document.documentElement.dataset.map = "ready";
  }

  function owner(place) {
    return prototypes.findIndex((one) => one.lights.includes(place));
  }

  async function refreshMap() {
    if (!views.map) return;
    const { targets, prototypes: shown } = mapData();
    await views.map.view.data("targets", targets).data("prototypes", shown).runAsync();
  }

  // Choosing a prototype

  async function choose(place, scroll = false) {
    if (place === -1) return;
    chosen = place;
    for (const card of cards) {
      if (Number(card.dataset.p) === place) card.setAttribute("aria-current", "true");
      else card.removeAttribute("aria-current");
    }
    for (const line of $$("#table tr[data-p]")) {
      if (Number(line.dataset.p) === place) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    }
    showDetail();
    if (scroll) $("#map").scrollIntoView({ block: "start" });
    if (views.map) {
      const { lit, chosen: one } = chosenData();
      await views.map.view.signal("dim", place !== null).data("lit", lit).data("chosen", one).runAsync();
    }
    document.documentElement.dataset.lit = place === null ? "" : prototypes[place].lights.length;
  }

  function showDetail() {
    const panel = $("#detail");
    if (!panel) return;
    const place = chosen === null ? 0 : chosen;  // none is chosen yet: the first one is an example
    const one = prototypes[place];
    const card = cards[place];
    const copy = (selector) => { const found = $(selector, card); return found ? found.cloneNode(true) : null; };
    const head = make("h3", {}, make("span", { className: "rank", textContent: one.rank }), one.name ? make("bdi", { className: "id", textContent: one.name }) : "", ` row ${one.row}`);
    const represented = copy(".represented");
    const drawn = one.lights.length < one.targets ? ` ${one.lights.length} of them are on the map.` : "";
    const said = chosen === null
      ? `The first ${data.noun}. Choose another one, on the map or in the gallery.`
      : `Lit up: the ${one.targets === 1 ? "target" : `${one.targets} targets`} it represents.${drawn}`;
    const parts = [
      head, make("p", {}, ...tags(one)), copy(".big"), copy(".broken"), copy(".text"), copy(".fields"), copy(".numbers"),
      make("p", { className: "quiet", textContent: said }),
      represented ? make("h4", { textContent: "Most of its mass, the nearest first" }) : null, represented,
    ];
    panel.replaceChildren(...parts.filter((part) => part !== null));
    if (represented && !$("img", represented)) represented.classList.add("lines");
    $$("img[data-picture]", panel).forEach(showPicture);
    panel.scrollTop = 0;
  }

  $("#cards").addEventListener("click", (event) => {
    const card = event.target.closest(".card");
    if (card && !getSelection().toString()) choose(Number(card.dataset.p), true);
  });
  $$("a[data-choose]").forEach((link) => link.addEventListener("click", () => { reveal(Number(link.dataset.choose)); choose(Number(link.dataset.choose)); }));
  for (const list of $$(".worst, #cards, #detail")) {
    list.addEventListener("mousemove", (event) => {
      const one = event.target.closest("[data-item]");
      if (one && one.parentElement.classList.contains("represented")) showTip(event, ...tipOfItem(Number(one.dataset.item)));
      else showTip(event);
    });
    list.addEventListener("mouseleave", (event) => showTip(event));
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // Search and filters

  const search = $("#search");
  const words = cards.map((card) => card.textContent.toLocaleLowerCase());

  function filters() {
    return Object.fromEntries($$(".filter").filter((one) => one.value !== "").map((one) => [one.dataset.kind, Number(one.value)]));
  }

  function refilter() {
    const only = filters();
    const wanted = search.value.trim().toLocaleLowerCase().split(/\s+/).filter(Boolean);
    matching = [];
    cards.forEach((card, place) => {
      const one = prototypes[place];
      const fits = Object.entries(only).every(([kind, code]) => one[kind] === code) && wanted.every((word) => words[place].includes(word));
      if (fits) matching.push(place);
    });
    first = 0;
    showPage();
    const all = prototypes.length.toLocaleString("en");
    $("#count").textContent = matching.length === prototypes.length ? all : `${matching.length.toLocaleString("en")} of ${all}`;
    $("#none").hidden = matching.length > 0;
    refreshMap();
  }

  // Pages of cards, or of lines of a table

  const perPage = 60;
  let first = 0;
  let asTable = data.named;  // an array's columns have no names to look for

  function onPage() {
    return matching.slice(first, first + perPage);
  }

  function reveal(place) {
    const here = matching.indexOf(place);
    if (here === -1 || (here >= first && here < first + perPage)) return;
    first = perPage * Math.floor(here / perPage);
    showPage();
  }

  function showPage() {
    const shown = new Set(onPage());
    // Out of sight first: a grid that is shown lets thousands of items go one by one, in seconds.
    $("#cards").hidden = true;
    void $("#cards").offsetHeight;
    cards.forEach((card, place) => { card.parentElement.hidden = !shown.has(place); card.tabIndex = -1; });
    if (matching.length) cards[matching[first]].tabIndex = 0;
    const last = Math.min(first + perPage, matching.length);
    $("#pages").hidden = matching.length <= perPage;
    $("#page").textContent = `${first + 1} – ${last} of ${matching.length.toLocaleString("en")}`;
    $("#before").disabled = first === 0;
    $("#after").disabled = last === matching.length;
    $("#cards").hidden = asTable;
    $("#table").hidden = !asTable;
    if ($("#as-table")) {
      $("#as-table").setAttribute("aria-pressed", asTable);
      $("#as-cards").setAttribute("aria-pressed", !asTable);
    }
    if (asTable) $("#table").replaceChildren(lines([...shown]));
  }

  function turn(step) {
    first = Math.max(0, Math.min(first + step * perPage, matching.length - 1));
    showPage();
    $("#gallery").scrollIntoView({ block: "start" });
  }

  $("#before").addEventListener("click", () => turn(-1));
  $("#after").addEventListener("click", () => turn(1));
  if ($("#as-table")) {
    $("#as-table").addEventListener("click", () => { asTable = true; showPage(); });
    $("#as-cards").addEventListener("click", () => { asTable = false; showPage(); });
  }

  function lines(places) {
    const kinds = Object.keys(data.coverage);
    const named = prototypes.some((one) => one.name);
    const titles = ["", ...(named ? ["id"] : []), "row", ...kinds, ...data.columns, "represents", "away"];
    const head = make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col", textContent: title, title }))));
    const body = make("tbody");
    for (const place of places) {
      const one = prototypes[place];
      const values = new Map($$(".fields > div", cards[place]).map((pair) => [pair.children[0].textContent, pair.children[1].textContent]));
      const plain = (text) => make("td", { textContent: text ?? "", title: text ?? "" });
      const number = (value) => make("td", { className: "number", textContent: value === null ? "" : figure.format(value) });
      const line = make("tr", { tabIndex: 0 }, make("th", { scope: "row", textContent: one.rank }), ...(named ? [plain(one.name)] : []), plain(String(one.row)),
        ...kinds.map((kind) => plain(name(kind, one[kind]))),
        ...data.columns.map((column) => {
          const cell = plain(values.get(column));
          if (/^-?[\d.,]+(e[+-]?\d+)?$/i.test(cell.textContent)) cell.classList.add("number");
          if (one.unusual.includes(column)) cell.classList.add("unusual");
          return cell;
        }), number(one.targets), number(one.away));
      line.dataset.p = place;
      if (place === chosen) line.setAttribute("aria-current", "true");
      body.append(line);
    }
    [...body.rows].slice(0, 1).forEach((line) => [...line.cells].forEach((cell, at) => head.rows[0].cells[at].classList.toggle("number", cell.classList.contains("number"))));
    return make("table", {}, head, body);
  }

  for (const kind of ["click", "keydown"]) {
    $("#table").addEventListener(kind, (event) => {
      const line = event.target.closest("tr[data-p]");
      if (!line || (kind === "keydown" && event.key !== "Enter")) return;
      choose(Number(line.dataset.p), true);
    });
  }

  // On paper there are no pages to turn, and an address such as #p70 names one prototype.

  addEventListener("beforeprint", () => {
    if (asTable) $("#table").replaceChildren(lines(matching));
    else matching.forEach((place) => { cards[place].parentElement.hidden = false; });
  });
  addEventListener("afterprint", showPage);
  addEventListener("hashchange", revealAddress);

  function revealAddress() {
    const rank = Number((/^#p(\d+)$/.exec(location.hash) || [])[1]);
    if (!(rank >= 1 && rank <= cards.length)) return;
    reveal(rank - 1);
    const shown = asTable ? $(`#table tr[data-p="${rank - 1}"]`) : cards[rank - 1];
    if (shown) shown.scrollIntoView({ block: "nearest" });
  }

  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refilter, 120); });
  $$(".filter").forEach((one) => one.addEventListener("change", refilter));

  // Keyboard

  function focusCard(place) {
    reveal(place);
    cards.forEach((card) => { card.tabIndex = -1; });
    cards[place].tabIndex = 0;
    cards[place].focus();
    cards[place].scrollIntoView({ block: "nearest" });
  }

  function perLine() {
    const shown = onPage();
    const top = cards[shown[0]].parentElement.offsetTop;
    const next = shown.findIndex((place) => cards[place].parentElement.offsetTop > top);
    return next === -1 ? shown.length : next;
  }

  $("#cards").addEventListener("keydown", (event) => {
    const card = event.target.closest(".card");
    if (!card || event.ctrlKey || event.metaKey || event.altKey) return;
    const here = matching.indexOf(Number(card.dataset.p));
    const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -matching.length, End: matching.length };
    if (event.key === "ArrowDown" || event.key === "ArrowUp") moves[event.key] = (event.key === "ArrowDown" ? 1 : -1) * perLine();
    if (event.key in moves) {
      focusCard(matching[Math.max(0, Math.min(matching.length - 1, here + moves[event.key]))]);
      event.preventDefault();
    } else if (event.key === "Enter" || event.key === " ") {
      choose(Number(card.dataset.p));
      event.preventDefault();
    }
  });

  const mapPlace = $("#chart-map");
  if (mapPlace) {
    mapPlace.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || !matching.length) return;
      const here = matching.indexOf(chosen);
      choose(matching[here === -1 ? 0 : (here + step + matching.length) % matching.length]);
      event.preventDefault();
    });
  }

  addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing) { search.focus(); event.preventDefault(); }
    if (event.key === "Escape") { if (typing) event.target.blur(); else choose(null); tip.hidden = true; }
  });

  // Export

  function rows() {
    return matching.map((place) => {
      const one = prototypes[place];
      const text = $(".text", cards[place]);
      // A column may be called constructor or __proto__: the row has only what is put into it.
      const row = Object.assign(Object.create(null), { row: one.row, rank: one.rank, represents: one.targets });
      if (one.name) row.id = one.name;
      for (const kind of Object.keys(data.coverage)) row[kind] = name(kind, one[kind]);
      if (text) row.text = text.textContent;
      $$(".fields > div", cards[place]).forEach((pair) => {
        const key = pair.children[0].textContent;
        row[key in row ? `${key}_` : key] = pair.children[1].textContent;
      });
      return row;
    });
  }

  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    // A spreadsheet would run a text that begins like a formula.
    const text = /^[=+\-@\t\r]/.test(value) && !/^-?[\d.]+(e[+-]?\d+)?$/i.test(value) ? `'${value}` : value;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function asCsv(list) {
    const columns = [...new Set(list.flatMap((row) => Object.keys(row)))];
    return [columns, ...list.map((row) => columns.map((column) => row[column]))].map((values) => values.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  function download(file, type, text) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    const link = make("a", { href: address, download: file, hidden: true });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  $("#csv").addEventListener("click", () => download(`${data.noun.replaceAll(" ", "-")}s.csv`, "text/csv;charset=utf-8", `\ufeff${asCsv(rows())}`));
  $("#json").addEventListener("click", () => download(`${data.noun.replaceAll(" ", "-")}s.json`, "application/json", `${JSON.stringify(rows(), null, 2)}\n`));

  const details = $("#details");
  details.addEventListener("toggle", () => { if (details.open) draw("curve"); });  // now it has a width
  showPage();
  showDetail();
  revealAddress();

  async function drawAll() {
    await drawMap();
    for (const id of Object.keys(data.charts)) if (id !== "map") await draw(id);
    document.documentElement.dataset.charts = "ready";
  }
  drawAll();
})();
