"use strict";
// Charts in the colours of the page, light or dark: what every page of ours shares.
const uniprotoCharts = (() => {
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";
  const views = Object.create(null);
  const nothing = { load: () => Promise.reject(new Error("this page loads nothing")), sanitize: () => Promise.reject(new Error("this page follows no links")) };

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (key) => style.getPropertyValue(`--${key}`).trim();
    return {
      blue: colour("blue"), orange: colour("lit"), green: colour("green"), pink: colour("pink"),
      grey: colour("grey"), ink: colour("ink"), paper: colour("panel"), quiet: colour("quiet"), line: colour("line"),
    };
  }

  function onTheme(redraw) {
    document.getElementById("theme").addEventListener("click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      redraw();
    });
    prefersDark.addEventListener("change", redraw);
  }

  async function draw(id, chart, extra, renderer, tooltip) {
    const place = document.getElementById(`chart-${id}`);
    if (!place || !chart) return null;
    const colour = colours();
    const painted = JSON.parse(JSON.stringify(chart), (key, value) =>
      typeof value === "string" && /^\$(blue|orange|green|pink|grey|ink|paper)$/.test(value) && key !== "name" && key !== "words" ? colour[value.slice(1)] : value);
    const spec = Object.assign(painted, extra);
    const axis = { labelColor: colour.quiet, titleColor: colour.quiet, gridColor: colour.line, domainColor: colour.line, tickColor: colour.line, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", titlePadding: 10 };
    const config = {
      background: null, font: "system-ui, sans-serif", axis,
      view: { stroke: null }, legend: { labelColor: colour.quiet, titleColor: colour.quiet, symbolFillColor: colour.quiet, labelFontSize: 12 },
      autosize: { type: "fit-x", contains: "padding" },
    };
    delete spec.config;
    if (views[id]) views[id].finalize();
    // `ast`: expressions are interpreted, so the page's policy need not allow code made from text.
    views[id] = await vegaEmbed(place, spec, {
      mode: "vega-lite", ast: true, actions: false, renderer, config, loader: nothing,
      defaultStyle: false, tooltip, hover: false,
    });
    return views[id].view;
  }

  return { colours, draw, isDark, onTheme, views };
})();
