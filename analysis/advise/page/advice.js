// Draws the page of advice, and keeps it in step with the browser's theme and the printer.

const LONGEST = 24;

function paintLegends() {
  const { runs } = face();
  for (const line of document.querySelectorAll(".legend .line")) line.style.borderTopColor = runs[line.dataset.run];
}

function drawChanges(changes) {
  const { runs, soft } = face();
  const [better, worse] = runs;
  const colours = changes.map(({ least, most }) => (most < -1 ? better : least > 1 ? worse : soft));
  const names = changes.map(({ name }) => escaped(name));
  const short = changes.map(({ name }) => (name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name));
  const traces = changes.map(({ change, least, most }, place) => ({
    type: "scatter", mode: "markers", x: [change], y: [names[place]], showlegend: false, marker: { size: 10, color: colours[place] },
    error_x: { type: "data", symmetric: false, array: [most - change], arrayminus: [change - least], color: colours[place], thickness: 2, width: 5 },
    hovertemplate: `${names[place]}: ${change.toFixed(1)} % (${least.toFixed(1)} to ${most.toFixed(1)})<extra></extra>`,
  }));
  return draw("plot-changes", traces, {
    height: 90 + 24 * changes.length, hovermode: "closest", margin: { l: 8 + 6.5 * Math.max(...short.map((name) => name.length)), r: 12, t: 34, b: 42 },
    xaxis: axis("change of the mean completion time (%)", { zeroline: true, zerolinecolor: soft, zerolinewidth: 1.5 }),
    yaxis: axis("", { type: "category", categoryarray: names, categoryorder: "array", autorange: "reversed", automargin: false, tickvals: names, ticktext: short.map(escaped) }),
  });
}

function drawAll({ values }) {
  const { calibration, compared } = values;
  paintLegends();
  if (calibration) {
    drawDistribution(calibration, "plot-calibration", calibration.waiting, "Waiting until the start", "from submission to start (logarithmic, from 1 s)");
    drawQueue(calibration);
  }
  if (compared) {
    drawDistribution(compared, "plot-completion", compared.completion, "Completion time", "from submission to end (logarithmic)");
    drawDistribution(compared, "plot-waiting", compared.waiting, "Waiting time", "time without GPUs (logarithmic, from 1 s)");
    drawChanges(compared.changes);
  }
}

openPage((data) => {
  const again = () => drawAll(data);
  DARK.addEventListener("change", again);
  for (const [event, now] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      printing = now;
      again();
    });
  }
  again();
});
