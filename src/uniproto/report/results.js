(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");

  // Every piece of text enters the page as text: there is no innerHTML in this file.
  function showTip(handler, event, mark, value) {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    const pairs = typeof value === "object" ? Object.entries(value) : [["", value]];
    tip.replaceChildren(...pairs.map(([key, text]) => Object.assign(document.createElement("p"), { textContent: key ? `${key}: ${text}` : text })));
    const { offsetWidth: w, offsetHeight: h } = tip;
    tip.style.left = `${event.clientX + 16 + w > innerWidth ? Math.max(4, event.clientX - w - 12) : event.clientX + 16}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - h - 6))}px`;
  }

  async function drawAll() {
    for (const [id, chart] of Object.entries(data.charts)) await uniprotoCharts.draw(id, chart, {}, "svg", showTip);
    document.documentElement.dataset.charts = "ready";
  }

  uniprotoCharts.onTheme(drawAll);
  drawAll();
})();
