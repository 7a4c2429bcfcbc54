"use strict";
(() => {
  const narrow = () => window.innerWidth < 640;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const axisTypes = {};

  // "@name" in a figure is the theme's colour of that name.
  function themed(value, style) {
    if (typeof value === "string" && value.startsWith("@")) return style.getPropertyValue("--" + value.slice(1)).trim();
    if (Array.isArray(value)) return value.map((entry) => themed(entry, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, themed(entry, style)]));
    }
    return value;
  }

  function fitted(layout, id) {
    if (narrow()) {
      layout.font.size = 11;
      layout.margin = { ...layout.margin, l: 48, r: 12 };
      if (layout.annotations) { layout.annotations = []; layout.margin.t = 24; }
    }
    const type = axisTypes[id];
    if (type) {
      layout.xaxis.type = type;
      layout.yaxis.type = type;
    }
    return layout;
  }

  function draw(id) {
    const style = getComputedStyle(document.documentElement);
    const { data, layout } = themed(figures[id], style);
    const config = {
      displaylogo: false, responsive: true, scrollZoom: false, displayModeBar: narrow() ? false : "hover",
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    };
    return Plotly.react(document.getElementById(id), data, fitted(layout, id), config);
  }

  const drawAll = () => Promise.all(Object.keys(figures).map(draw));
  drawAll().then(() => { document.documentElement.dataset.drawn = String(Object.keys(figures).length); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let wasNarrow = narrow();
  window.addEventListener("resize", () => {
    if (narrow() !== wasNarrow) { wasNarrow = narrow(); drawAll(); }
  });

  for (const button of document.querySelectorAll("button[data-log]")) {
    button.addEventListener("click", () => {
      const id = button.dataset.log;
      axisTypes[id] = axisTypes[id] === "log" ? "linear" : "log";
      button.textContent = axisTypes[id] === "log" ? "linear axes" : "log axes";
      draw(id);
    });
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }
  for (const button of document.querySelectorAll(".command button")) {
    button.addEventListener("click", async () => {
      await copy(button.parentElement.querySelector("pre").textContent);
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }
})();
