// The timeline of one job under every run, told by its events.

const LEFT_OUT = "\x00";
const unfolded = new Map();

async function timelineOf(data, run, job) {
  const block = data.values.timeline_block;
  const key = `${run}/${Math.floor(job / block)}`;
  if (!unfolded.has(key)) {
    const text = await inflateText(embedded(`timelines-${run}`).split(" ")[Math.floor(job / block)]);
    unfolded.set(key, text.split("\x01"));
  }
  return unfolded.get(key)[job % block];
}

function factsOf(data, job) {
  const model = data.chosen("job.model")(job), plan = data.chosen("job.plan")(job), user = data.chosen("job.user")(job);
  const asked = `${plural(data.array("job.gpus")[job], "GPU")}${model ? `, ${model}` : ""}${plan ? `, ${plan}` : ""}${user ? `, of ${user}` : ""}`;
  return `${asked}; submitted at ${moment(data.array("job.submit_s")[job])}`;
}

function lifeOf(data, run, job) {
  const of = (name) => data.array(`${run}.${name}`)[job];
  const status = data.chosen(`${run}.status`)(job);
  if (!status) return "not submitted before the run ended";
  const took = of("queue_s") + of("run_s");
  const parts = [`waited ${duration(of("queue_s"))}`, `ran ${duration(of("run_s"))}`];
  if (of("comm_s") > 0.05) parts.push(`of that ${duration(of("comm_s"))} for the network`);
  if (of("preemptions")) parts.push(`preempted ${plural(of("preemptions"), "time")}`);
  const times = of("ideal_s") > 0 ? ` (${(took / of("ideal_s")).toFixed(2)} × ideal)` : "";
  const life = status === "COMPLETED" || status === "FAILED" ? `${status.toLowerCase()} after ${duration(took)}${times}` : status.toLowerCase();
  return `${life}: ${parts.join(", ")}`;
}

function linesOf(timeline, folder, name) {
  const list = document.createElement("ol");
  if (timeline === LEFT_OUT) {
    const item = document.createElement("li");
    item.textContent = `Left out to keep this file small; read it with: dally why ${name} --run ${folder}`;
    list.append(item);
    return list;
  }
  for (const line of timeline.split("\n").filter(Boolean)) {
    const [t, words] = line.split("\t");
    const item = document.createElement("li"), time = document.createElement("time"), said = document.createElement("span");
    time.textContent = moment(Number(t));
    said.textContent = words;
    item.append(time, said);
    list.append(item);
  }
  return list;
}

async function openTimeline(data, job, shown) {
  const { runs, folders } = data.values;
  document.getElementById("timeline-title").textContent = jobName(data, job);
  document.getElementById("timeline-facts").textContent = factsOf(data, job);
  const told = await Promise.all(runs.map(async (name, run) => {
    const details = document.createElement("details"), summary = document.createElement("summary"), bold = document.createElement("b");
    details.open = run === shown;
    bold.textContent = name;
    summary.append(bold, lifeOf(data, run, job));
    details.append(summary, linesOf(await timelineOf(data, run, job), folders[run], jobName(data, job)));
    return details;
  }));
  document.getElementById("timeline-runs").replaceChildren(...told);
  const dialog = document.getElementById("timeline");
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}
