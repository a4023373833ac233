// Times, differences and axes as people read them.

const DAY_S = 86400;

function duration(seconds) {
  const size = Math.abs(seconds);
  const three = (value) => (Math.abs(value) < 100 ? Number(value.toPrecision(3)).toString() : Math.round(value).toLocaleString("en"));
  if (size < 0.1) return "0 s";
  if (size < 100) return `${three(seconds)} s`;
  if (size < 6000) return `${three(seconds / 60)} min`;
  if (size < 360000) return `${three(seconds / 3600)} h`;
  return `${three(seconds / DAY_S)} d`;
}

function moment(t) {
  const whole = Math.floor(Math.abs(t));
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  const clock = `${two((whole % DAY_S) / 3600)}:${two((whole / 60) % 60)}:${two(whole % 60)}`;
  const days = Math.floor(whole / DAY_S);
  return `${t <= -1 ? "-" : ""}${days ? `${days.toLocaleString("en")} d ` : ""}${clock}`;
}

function change(value, base) {
  if (!(base > 0)) return value > 0 ? "new" : "";
  const ratio = value / base;
  if (ratio >= 10) return `${Math.round(ratio)} x`;
  const points = Math.round(100 * (ratio - 1));
  return `${points > 0 ? "+" : points < 0 ? "−" : "±"}${Math.abs(points)} %`;
}

// The unit in which an axis of so many seconds is written.
function timeUnit(spanS) {
  if (spanS > 4 * DAY_S) return { name: "days", seconds: DAY_S };
  if (spanS > 4 * 3600) return { name: "hours", seconds: 3600 };
  if (spanS > 600) return { name: "minutes", seconds: 60 };
  return { name: "seconds", seconds: 1 };
}

const TIME_TICKS = [
  [1, "1 s"], [10, "10 s"], [60, "1 min"], [600, "10 min"], [3600, "1 h"], [36000, "10 h"], [4 * DAY_S, "4 d"], [40 * DAY_S, "40 d"],
  [400 * DAY_S, "400 d"],
];
const TICKS_BETWEEN = [[3, "3 s"], [30, "30 s"], [120, "2 min"], [300, "5 min"], [1800, "30 min"], [10800, "3 h"], [18000, "5 h"], [72000, "20 h"], [2 * DAY_S, "2 d"], [10 * DAY_S, "10 d"]];
const FEW_TICKS = 4;

// Ticks of a logarithmic axis of times; those between, too, where there would be few.
function logTicks(fromS, toS) {
  const within = (ticks) => ticks.filter(([at]) => at >= fromS && at <= toS);
  const ticks = within(TIME_TICKS);
  return ticks.length < FEW_TICKS ? [...ticks, ...within(TICKS_BETWEEN)].sort(([one], [two]) => one - two) : ticks;
}

// Plotly takes some HTML in hover texts.
function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
