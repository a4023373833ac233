// Unfolds the data and the plotting library, lets the page draw itself, and says what went wrong.

function complain(what) {
  const problem = document.getElementById("problem");
  problem.textContent = what;
  problem.hidden = false;
}

async function loadPlotly() {
  const script = document.createElement("script");
  script.textContent = await inflateText(embedded("plotly"));
  document.head.append(script);
}

async function drawn(show) {
  if (!("DecompressionStream" in window)) {
    complain("This browser is too old for the figures and the list of jobs; any from 2023 or later shows them.");
    return;
  }
  const [buffer] = await Promise.all([inflate(embedded("data")), loadPlotly()]);
  await show(new Data(buffer));
  document.body.dataset.ready = "yes";
}

function openPage(show) {
  drawn(show).catch((error) => {
    complain(`Part of this report could not be drawn: ${error.message}`);
    throw error;
  });
}
