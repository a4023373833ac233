// The cluster over time, and the timers: figures of one run.

const IDLE_CELL = 255, DOWN_CELL = 254;
const JOB_STRIDE = 7;

// A colour scale in which each whole number from 0 has its own colour.
function steps(colours) {
  return colours.flatMap((colour, place) => [[place / colours.length, colour], [(place + 1) / colours.length, colour]]);
}

function mapColours(colour, values) {
  const { idle, down, jobs, use } = face();
  if (colour === "level") {
    const levels = levelColours(values.levels.length);
    return { colours: [...levels, down, idle], names: [...values.levels.map((level) => `one ${level}`), "down", "mostly idle"] };
  }
  if (colour === "job") return { colours: [...jobs, down, idle], names: ["each colour is a job; colours repeat", "down", "nobody"], shown: [0, jobs.length, jobs.length + 1] };
  return { scale: [[0, use[0]], [1, use[1]]], names: ["0 %", "100 % of the GPU time held"], ends: use };
}

function cellValue(colour, arrays, cell, count) {
  if (colour === "percent") return arrays.percent[cell];
  const special = arrays.level[cell] === DOWN_CELL ? count - 2 : count - 1;
  if (colour === "job") return arrays.job[cell] < 0 ? special : (arrays.job[cell] * JOB_STRIDE) % (count - 2);
  return arrays.level[cell] >= DOWN_CELL ? special : arrays.level[cell];
}

// What hovering over a cell says: row, span of time, use, level, job.
function cellTexts(data, map, arrays) {
  const { begin_s, width_s, count } = data.values.bins;
  const gpus = data.array("job.gpus");
  const edges = Array.from({ length: count + 1 }, (_, bin) => moment(begin_s + bin * width_s));
  const level = (place) => (place < DOWN_CELL ? `, one ${data.values.levels[place]}` : place === DOWN_CELL ? ", down" : "");
  const who = (job) => (job < 0 ? "" : `<br>${escaped(jobName(data, job))}: ${plural(gpus[job], "GPU")}`);
  return map.names.map((name, row) => {
    const where = escaped([map.racks[row], name].filter(Boolean).join(" · "));
    return Array.from({ length: count }, (_, bin) => {
      const cell = row * count + bin;
      return `${where}<br>${edges[bin]} to ${edges[bin + 1]}<br>${arrays.percent[cell]} % held${level(arrays.level[cell])}${who(arrays.job[cell])}`;
    });
  });
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

function drawMap(data, run, colour) {
  const { values } = data;
  const map = values.maps[run];
  const unit = timeUnit(values.bins.width_s * values.bins.count);
  const arrays = { level: data.array(`${run}.map.level`), percent: data.array(`${run}.map.percent`), job: data.array(`${run}.map.job`) };
  const palette = mapColours(colour, values);
  const count = palette.colours?.length;
  const z = map.names.map((_, row) => Array.from({ length: values.bins.count }, (__, bin) => cellValue(colour, arrays, row * values.bins.count + bin, count)));
  drawMapLegend(palette, arrays.level.includes(DOWN_CELL));
  const note = document.getElementById("map-note");
  note.textContent = `Each row is one ${map.unit}, each cell ${duration(values.bins.width_s)}. ${colour === "level" ? "The colour is the level at which most of the cell's GPU time was held. " : ""}Choose a cell to read the timeline of its job.`;
  const scale = palette.scale ?? steps(palette.colours);
  const trace = {
    type: "heatmap", z, text: cellTexts(data, map, arrays), x0: (values.bins.begin_s + values.bins.width_s / 2) / unit.seconds, dx: values.bins.width_s / unit.seconds, zmin: palette.scale ? 0 : -0.5,
    zmax: palette.scale ? 100 : count - 0.5, colorscale: scale, showscale: false, hovertemplate: "%{text}<extra></extra>",
  };
  const height = Math.min(640, Math.max(220, map.names.length * (map.names.length <= 32 ? 16 : 7))) + 60;
  return draw("plot-map", [trace], {
    height, margin: { l: 60, r: 12, t: 8, b: 46 }, hovermode: "closest", shapes: rackLines(map), xaxis: { ...timeAxis(values, unit), showgrid: false }, yaxis: mapRows(map),
  });
}

function drawMapLegend(palette, anyDown) {
  const legend = document.getElementById("map-legend");
  const colours = palette.ends ?? (palette.shown ? palette.shown.map((place) => palette.colours[place]) : palette.colours);
  const shown = palette.names.map((name, place) => [name, colours[place]]).filter(([name]) => anyDown || name !== "down");
  legend.replaceChildren(...shown.map(([name, colour]) => {
    const entry = document.createElement("span"), chip = document.createElement("i");
    chip.style.background = colour;
    entry.append(chip, name);
    return entry;
  }));
}

// Runs of rows with the same name: [name, first, last].
function stretchesOf(names) {
  const found = [];
  names.forEach((name, row) => {
    if (found.length && found.at(-1)[0] === name) found.at(-1)[2] = row;
    else found.push([name, row, row]);
  });
  return found;
}

function rackLines(map) {
  const racks = stretchesOf(map.racks.some(Boolean) ? map.racks : map.groups).slice(1);
  const line = { color: face().ground, width: racks.length > 40 ? 1 : 2 };
  return racks.map(([, row]) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: row - 0.5, y1: row - 0.5, line }));
}

function mapRows(map) {
  let groups = stretchesOf(map.groups.some(Boolean) ? map.groups : map.names);
  if (groups.length > 24 && map.racks.some(Boolean)) groups = stretchesOf(map.racks);
  const every = Math.ceil(groups.length / 24);
  const ticks = groups.filter((_, place) => place % every === 0);
  const title = { GPU: "GPUs by rack and machine", machine: "machines by rack" }[map.unit] ?? `${map.unit}s`;
  return axis(title, {
    autorange: "reversed", showgrid: false, tickvals: ticks.map(([, first, last]) => (first + last) / 2), ticktext: ticks.map(([name]) => name),
  });
}

function drawTimers(values, run) {
  const colours = levelColours(values.levels.length);
  const unit = timeUnit(values.bins.width_s * values.bins.count);
  const bands = values.timers[run];
  const told = bands.flatMap((band) => [...band.least, ...band.most]).filter((delay) => delay > 0);
  const [shortest, longest] = told.length ? [Math.min(...told) / 1.3, Math.max(...told) * 1.3] : [1, 10];
  const ticks = logTicks(shortest, longest);
  const x = values.timer_times_s.map((t) => t / unit.seconds);
  const traces = bands.flatMap((band, level) => (band.median.every((delay) => delay === null) ? [] : [timerTrace(band, x, values.levels[level], colours[level])]));
  const none = { text: `${escaped(values.runs[run])} set no timers`, showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5, font: { size: 14, color: face().soft } };
  return draw("plot-timers", traces, {
    height: 320, title: "Timers when they were set", hovermode: "closest", showlegend: true, annotations: traces.length ? [] : [none],
    xaxis: timeAxis(values, unit),
    yaxis: axis("timer (logarithmic)", { type: "log", range: [Math.log10(shortest), Math.log10(longest)], tickvals: ticks.map(([at]) => at), ticktext: ticks.map(([, text]) => text) }),
  });
}

function timerTrace(band, x, level, color) {
  const told = band.median.map((_, place) => place).filter((place) => band.median[place] !== null);
  const [median, least, most] = ["median", "least", "most"].map((name) => told.map((place) => band[name][place]));
  return {
    type: "scatter", mode: "lines+markers", name: `for one ${level}`, x: told.map((place) => x[place]), y: median, line: { color, width: 1.6 }, marker: { color, size: 6 },
    error_y: { type: "data", symmetric: false, array: most.map((value, place) => value - median[place]), arrayminus: least.map((value, place) => median[place] - value), color, thickness: 1, width: 2 },
    text: median.map(duration), hovertemplate: "median %{text}",
  };
}
