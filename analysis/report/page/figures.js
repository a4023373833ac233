// The figures that compare all runs.

const FACES = {
  light: {
    ink: "#1c2330", soft: "#5b6675", line: "#e3e7ec", ground: "#ffffff", idle: "#e9edf1", down: "#8b6f8f",
    runs: ["#0072b2", "#d55e00", "#009e73", "#b0559b", "#8a6d00", "#3aa0d8"],
    levels: ["#2166ac", "#8cc0e0", "#f0b43c", "#c0392b", "#6b1d1d"],
    jobs: ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7a6fc4", "#a6a13b", "#4f7f80", "#b98b6a"],
    use: ["#e9edf1", "#0b3c6f"],
  },
  dark: {
    ink: "#e6eaf0", soft: "#9aa6b5", line: "#2c343f", ground: "#12161c", idle: "#232a34", down: "#9c7fa0",
    runs: ["#4da3e0", "#f08a3c", "#2fc296", "#dd8fc3", "#d4b545", "#9ad4f5"],
    levels: ["#3f83c9", "#a3d0ea", "#f2bd55", "#e0604f", "#a04040"],
    jobs: ["#3d8fd1", "#e69f00", "#1fae86", "#d48cb4", "#7cc6f0", "#e0722a", "#9489d6", "#b9b453", "#6d9c9d", "#c89d7e"],
    use: ["#232a34", "#8fd0ff"],
  },
};
const DASHES = ["solid", "dash", "dot"];
const DARK = matchMedia("(prefers-color-scheme: dark)");
const TOUCH = matchMedia("(pointer: coarse)");
const hidden = new Set();
let printing = false;

function face() {
  return DARK.matches && !printing ? FACES.dark : FACES.light;
}

function levelColours(count) {
  const colours = face().levels;
  const picks = { 1: [0], 2: [0, 2], 3: [0, 2, 3], 4: [0, 1, 2, 3] }[count];
  return picks ? picks.map((pick) => colours[pick]) : Array.from({ length: count }, (_, place) => colours[place % colours.length]);
}

function axis(title, more = {}) {
  const { soft, line } = face();
  return {
    title: { text: title, font: { size: 12.5, color: soft }, standoff: 8 }, gridcolor: line, linecolor: line, zeroline: false,
    tickfont: { color: soft, size: 11.5 }, automargin: true, ...more,
  };
}

function draw(id, traces, layout) {
  const { ink, ground } = face();
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, family: "system-ui, sans-serif", size: 12 },
    margin: { l: 48, r: 12, t: 34, b: 42 }, height: 320, dragmode: TOUCH.matches ? false : "zoom", hoverlabel: { align: "left", bgcolor: ground, font: { color: ink } },
    legend: { orientation: "h", y: -0.22, yanchor: "top", x: 0, font: { size: 11.5 } }, ...layout,
  };
  if (printing) whole.width = layout.printWidth ?? 700;
  delete whole.printWidth;
  if (whole.title) whole.title = { text: whole.title, font: { size: 13.5 }, x: 0, xanchor: "left", xref: "paper", y: 1, yref: "paper", yanchor: "bottom", pad: { b: 10 } };
  return Plotly.react(id, traces, whole, { responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] });
}

function runLine(values, place) {
  const { runs } = face();
  return {
    name: escaped(values.runs[place]), visible: !hidden.has(place), showlegend: false,
    line: { color: runs[place % runs.length], dash: DASHES[Math.floor(place / runs.length) % DASHES.length], width: 1.8 },
  };
}

// One legend for all figures that compare runs: a run is hidden and shown again by its button.
function drawRunLegends(values, toggle) {
  const borders = { solid: "solid", dash: "dashed", dot: "dotted" };
  for (const legend of document.querySelectorAll(".legend.runs")) {
    legend.hidden = values.runs.length === 1;
    legend.replaceChildren(...values.runs.map((name, place) => {
      const button = document.createElement("button"), line = document.createElement("i");
      const { color, dash } = runLine(values, place).line;
      line.className = "line";
      line.style.borderTop = `3px ${borders[dash]} ${color}`;
      button.type = "button";
      button.title = "Hide this run, or show it again";
      button.ariaPressed = String(!hidden.has(place));
      button.append(line, name);
      button.addEventListener("click", () => toggle(place));
      return button;
    }));
  }
}

function drawDistribution(values, id, curves, title, xTitle) {
  const longest = Math.max(...curves.flatMap((curve) => curve.s), 10);
  const shortest = Math.min(...curves.map((curve) => curve.s[Math.max(1, curve.share.findIndex((share) => share >= 1))] ?? 1));
  const from = id === "plot-waiting" ? 1 : Math.max(1, shortest / 2);
  const ticks = logTicks(from * 0.99, longest * 1.15);
  const traces = curves.map((curve, place) => ({
    ...runLine(values, place), type: "scatter", mode: "lines", x: curve.s, y: curve.share,
    text: curve.s.map(duration), hovertemplate: "%{y:.1f} % within %{text}",
  }));
  for (const trace of traces) trace.line.shape = "hv";
  return draw(id, traces, {
    height: 330, printWidth: 340, title, hovermode: "closest",
    xaxis: axis(xTitle, { type: "log", range: [Math.log10(from * 0.93), Math.log10(longest * 1.15)], tickvals: ticks.map(([at]) => at), ticktext: ticks.map(([, text]) => text) }),
    yaxis: axis("share of jobs (%)", { range: [0, 101] }),
  });
}

function timeAxis(values, unit) {
  const { begin_s, width_s, count } = values.bins;
  return axis(`time since the run's origin (${unit.name})`, { range: [begin_s / unit.seconds, (begin_s + width_s * count) / unit.seconds] });
}

function drawQueue(values) {
  const { width_s, count } = values.bins;
  const unit = timeUnit(width_s * count);
  const traces = values.usage.map((usage, place) => ({
    ...runLine(values, place), type: "scatter", mode: "lines", x: values.usage_times_s.map((t) => t / unit.seconds), y: usage.waiting, hovertemplate: "%{y:.1f} jobs",
  }));
  return draw("plot-queue", traces, {
    height: stripsHeight(values), printWidth: 340, title: "Queue", hovermode: "closest", xaxis: timeAxis(values, unit), yaxis: axis("jobs that wait", { rangemode: "tozero" }),
  });
}

function stripsHeight(values) {
  return Math.max(300, 76 + 42 * (values.runs.length - hidden.size));
}

// A strip for each run, all with the same axes, so that nothing hides behind anything.
function drawUse(values) {
  const { width_s, count } = values.bins;
  const unit = timeUnit(width_s * count);
  const shown = values.runs.map((_, place) => place).filter((place) => !hidden.has(place));
  const x = values.usage_times_s.map((t) => t / unit.seconds);
  const height = 0.97 / Math.max(1, shown.length);
  const layout = { height: stripsHeight(values), printWidth: 340, title: "GPUs in use (% of all)", hovermode: "closest", xaxis: { ...timeAxis(values, unit), anchor: "y" }, annotations: [] };
  const traces = shown.map((place, strip) => {
    const name = strip ? `y${strip + 1}` : "y", top = 0.97 - strip * height;
    const bottom = top - 0.7 * height;
    layout[name.replace("y", "yaxis")] = axis("", { domain: [Math.max(0, bottom), top - 0.12 * height], range: [0, 100], tickvals: shown.length > 4 ? [100] : [0, 50, 100] });
    layout.annotations.push({ text: escaped(values.runs[place]), xref: "paper", yref: "paper", x: 0, y: top - 0.12 * height, xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 11 } });
    const line = runLine(values, place);
    return { ...line, visible: true, line: { ...line.line, dash: "solid", width: 1 }, type: "scatter", mode: "lines", fill: "tozeroy", x, y: values.usage[place].held, yaxis: name, hovertemplate: "%{y:.0f} %" };
  });
  layout.xaxis.anchor = shown.length > 1 ? `y${shown.length}` : "y";
  return draw("plot-held", traces, layout);
}

function paintLevels(values) {
  const colours = levelColours(values.levels.length);
  for (const chip of document.querySelectorAll("i.level")) chip.style.background = colours[chip.dataset.level];
}

function drawPreemptions(values) {
  const traces = values.preempted_jobs.map((jobs, place) => ({
    name: escaped(values.runs[place]), type: "bar", x: values.preemption_classes, y: jobs, visible: !hidden.has(place), showlegend: false,
    marker: { color: runLine(values, place).line.color, pattern: { shape: ["", "/", "x"][Math.floor(place / face().runs.length) % 3], fgcolor: face().ground } },
    hovertemplate: "%{y:,} jobs preempted %{x} times",
  }));
  return draw("plot-preemptions", traces, {
    height: 300, title: "Jobs by how often they were preempted", hovermode: "closest",
    xaxis: axis("preemptions of the job", { type: "category" }), yaxis: axis("jobs (logarithmic)", { type: "log", dtick: 1, range: [-0.2, Math.log10(Math.max(...values.preempted_jobs.flat(), 10)) + 0.1] }),
  });
}
