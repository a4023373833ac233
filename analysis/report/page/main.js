// Unfolds the data, draws everything, and keeps it in step with the chosen run, the browser's theme and the printer.

class Report {
  constructor(data) {
    this.data = data;
    this.run = 0;
    this.jobs = new JobList(data, (job) => openTimeline(data, job, this.run));
  }

  async start() {
    const { runs } = this.data.values;
    for (const select of document.querySelectorAll("select.run")) {
      select.append(...runs.map((name, run) => new Option(name, run)));
      select.closest("label").hidden = runs.length === 1;
      select.addEventListener("change", () => this.choose(Number(select.value)));
    }
    document.getElementById("map-colour").addEventListener("change", () => this.drawRun());
    DARK.addEventListener("change", () => this.draw());
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
    this.jobs.show(0);
    for (const step of this.steps()) {
      step();
      await new Promise(requestAnimationFrame);
    }
    document.getElementById("plot-map").on("plotly_click", (event) => this.openCell(event.points[0]));
    const dialog = document.getElementById("timeline");
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  }

  choose(run) {
    this.run = run;
    for (const select of document.querySelectorAll("select.run")) select.value = run;
    this.drawRun();
    this.jobs.show(run);
  }

  // What there is to draw, in pieces, so that the page can be read meanwhile.
  steps() {
    const { values } = this.data;
    return [
      () => paintLevels(values),
      () => drawRunLegends(values, (place) => this.toggle(place)),
      () => drawDistribution(values, "plot-completion", values.completion, "Completion time", "from submission to end (logarithmic)"),
      () => drawDistribution(values, "plot-waiting", values.waiting, "Waiting time", "time without GPUs (logarithmic, from 1 s)"),
      () => drawUse(values),
      () => drawQueue(values),
      () => drawPreemptions(values),
      () => this.drawRun(),
    ];
  }

  draw() {
    for (const step of this.steps()) step();
  }

  toggle(place) {
    if (!hidden.delete(place)) hidden.add(place);
    this.draw();
  }

  drawRun() {
    drawMap(this.data, this.run, document.getElementById("map-colour").value);
    if (document.getElementById("plot-timers")) drawTimers(this.data.values, this.run);
  }

  print(now) {
    printing = now;
    this.draw();
  }

  openCell(point) {
    const job = this.data.array(`${this.run}.map.job`)[point.pointNumber[0] * this.data.values.bins.count + point.pointNumber[1]];
    if (job >= 0) openTimeline(this.data, job, this.run);
  }
}

openPage((data) => new Report(data).start());
