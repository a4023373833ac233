// The list of all jobs under one run: searched, sorted, and drawn a page at a time.

const PAGE = 25;

function jobName(data, job) {
  data.ids ??= data.texts("job.id");
  return data.ids[job];
}

class JobList {
  constructor(data, open) {
    this.data = data;
    this.open = open;
    this.count = data.array("job.gpus").length;
    this.run = 0;
    this.page = 0;
    this.sort = { key: "versus", down: true };
    this.found = Uint32Array.from({ length: this.count }, (_, job) => job);
    this.model = data.chosen("job.model");
    this.user = data.chosen("job.user");
    this.group = data.chosen("job.group");
    this.plan = data.chosen("job.plan");
    this.haystack = Array.from({ length: this.count }, (_, job) => `${jobName(data, job)} ${this.user(job)} ${this.group(job)} ${this.model(job)} ${this.plan(job)}`.toLowerCase());
    document.getElementById("search").addEventListener("input", () => this.refresh());
    document.getElementById("earlier").addEventListener("click", () => this.turn(-1));
    document.getElementById("later").addEventListener("click", () => this.turn(1));
    this.body = document.querySelector("#job-table tbody");
    this.body.addEventListener("click", (event) => this.choose(event));
    this.body.addEventListener("keydown", (event) => event.key === "Enter" && this.choose(event));
  }

  show(run) {
    this.run = run;
    this.columns = this.makeColumns(run);
    this.status = this.data.chosen(`${run}.status`);
    if (!this.columns.some((column) => column.key === this.sort.key)) this.sort = { key: "submit_s", down: false };
    this.refresh();
  }

  makeColumns(run) {
    const { data } = this;
    const of = (name) => data.array(`${run}.${name}`);
    const queue = of("queue_s"), ran = of("run_s"), ideal = of("ideal_s"), network = of("comm_s");
    const { runs, best, rival } = data.values;
    const other = run === best ? rival : best;
    const [otherQueue, otherRan] = [data.array(`${other}.queue_s`), data.array(`${other}.run_s`)];
    const gpus = data.array("job.gpus"), submit = data.array("job.submit_s"), preempted = of("preemptions"), failures = of("failures");
    const status = data.chosen(`${run}.status`), otherStatus = data.chosen(`${other}.status`), levels = data.chosen(`${run}.levels`);
    const ended = (state) => state === "COMPLETED" || state === "FAILED";
    const took = (job) => (ended(status(job)) ? queue[job] + ran[job] : NaN);
    const tookThere = (job) => (ended(otherStatus(job)) ? otherQueue[job] + otherRan[job] : NaN);
    const columns = [
      { key: "job", title: "job", text: true, value: (job) => jobName(data, job) },
      { key: "user", title: "user", text: true, spare: true, value: this.user, used: any(this.user, this.count) },
      { key: "model", title: "model", text: true, value: this.model, used: any(this.model, this.count) },
      { key: "gpus", title: "GPUs", value: (job) => gpus[job], show: (value) => value.toLocaleString("en") },
      { key: "submit_s", title: "submitted", spare: true, value: (job) => submit[job], show: moment },
      { key: "waited", title: "waited", value: (job) => queue[job], show: duration },
      { key: "ran", title: "ran", spare: true, value: (job) => ran[job], show: duration },
      { key: "took", title: "completion", value: took, show: duration },
      { key: "ideal", title: "× ideal", value: (job) => (ideal[job] > 0 ? took(job) / ideal[job] : NaN), show: (value) => value.toFixed(2) },
      { key: "network", title: "network", spare: true, value: (job) => network[job], show: duration },
      { key: "preempted", title: "preempted", value: (job) => preempted[job], show: String },
      { key: "failures", title: "failures", spare: true, value: (job) => failures[job], show: String, used: failures.some(Boolean) },
      { key: "levels", title: "placements", text: true, spare: true, value: levels, show: (value) => value.replaceAll(";", ", ").replaceAll(":", " ") },
      { key: "status", title: "status", text: true, spare: true, value: (job) => status(job).toLowerCase() || "not submitted" },
    ];
    const versus = {
      key: "versus", title: `against ${runs[other]}`, value: (job) => took(job) - tookThere(job), used: runs.length > 1, show: (value) => `${value < 0 ? "−" : "+"}${duration(Math.abs(value))}`,
      better: (job) => took(job) < 0.995 * tookThere(job), worse: (job) => 0.995 * took(job) > tookThere(job),
    };
    columns.splice(8, 0, versus);
    return columns.filter((column) => column.used !== false);
  }

  refresh() {
    const words = document.getElementById("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (let job = 0; job < this.count; job += 1) {
      if (words.every((word) => this.haystack[job].includes(word) || this.status(job).toLowerCase().includes(word))) found.push(job);
    }
    this.found = Uint32Array.from(found);
    this.order();
  }

  order() {
    const column = this.columns.find((each) => each.key === this.sort.key);
    const sign = this.sort.down ? -1 : 1;
    const values = Array(this.count);
    for (const job of this.found) values[job] = column.value(job);
    const compare = column.text ? (a, b) => sign * COLLATOR.compare(values[a], values[b]) : (a, b) => byNumber(values[a], values[b], sign);
    this.found.sort((a, b) => compare(a, b) || a - b);
    this.page = 0;
    this.draw();
  }

  sortBy(column) {
    const same = this.sort.key === column.key;
    this.sort = { key: column.key, down: same ? !this.sort.down : !column.text && column.key !== "submit_s" };
    this.order();
  }

  turn(by) {
    this.page += by;
    this.draw();
  }

  draw() {
    const pages = Math.max(1, Math.ceil(this.found.length / PAGE));
    this.page = Math.min(Math.max(this.page, 0), pages - 1);
    document.querySelector("#job-table thead tr").replaceChildren(...this.columns.map((column) => this.heading(column)));
    this.body.replaceChildren(...Array.from(this.found.subarray(this.page * PAGE, (this.page + 1) * PAGE), (job) => this.row(job)));
    document.getElementById("found").textContent = `${plural(this.found.length, "job")}${this.found.length < this.count ? ` of ${this.count.toLocaleString("en")}` : ""}`;
    document.getElementById("page").textContent = `page ${(this.page + 1).toLocaleString("en")} of ${pages.toLocaleString("en")}`;
    document.getElementById("earlier").disabled = this.page === 0;
    document.getElementById("later").disabled = this.page === pages - 1;
  }

  heading(column) {
    const cell = document.createElement("th"), button = document.createElement("button");
    button.type = "button";
    button.textContent = column.title;
    button.addEventListener("click", () => this.sortBy(column));
    cell.scope = "col";
    cell.className = classesOf(column);
    if (column.key === this.sort.key) cell.ariaSort = this.sort.down ? "descending" : "ascending";
    cell.append(button);
    return cell;
  }

  row(job) {
    const row = document.createElement("tr");
    row.dataset.job = job;
    row.tabIndex = 0;
    row.append(...this.columns.map((column, place) => {
      const cell = document.createElement(place ? "td" : "th");
      const value = column.value(job);
      cell.className = classesOf(column);
      if (column.better?.(job)) cell.classList.add("better");
      if (column.worse?.(job)) cell.classList.add("worse");
      cell.textContent = Number.isNaN(value) ? "–" : column.show ? column.show(value) : value;
      return cell;
    }));
    return row;
  }

  choose(event) {
    const row = event.target.closest("tr");
    if (row) this.open(Number(row.dataset.job));
  }
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

function byNumber(one, two, sign) {
  if (Number.isNaN(one) || Number.isNaN(two)) return Number.isNaN(one) - Number.isNaN(two);
  return sign * (one - two);
}

function any(value, count) {
  for (let job = 0; job < count; job += 1) if (value(job)) return true;
  return false;
}

function classesOf(column) {
  return `${column.text ? "text" : ""} ${column.spare ? "spare" : ""}`.trim();
}
