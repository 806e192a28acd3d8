"use strict";
// The curve of ε over rounds, on logarithmic axes.
const riffleChart = (() => {
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const power = x => {
    if (x >= 1e-3 && x < 1e4) return String(Number(x.toPrecision(3)));
    return x.toExponential(0).replace("e+", "e");
  };
  // Decades, and within few decades also their doubles and fives.
  function splits(u, axis, min, max) {
    const out = [], decades = Math.log10(max / min);
    const parts = decades > 3.2 ? [1] : decades > 1.2 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
    const every = Math.max(1, Math.ceil(decades / 8));
    for (let e = Math.floor(Math.log10(min)); e <= Math.ceil(Math.log10(max)); e++) {
      if (e % every) continue;
      for (const m of parts) {
        const x = Number(`${m}e${e}`);
        if (x >= min * (1 - 1e-9) && x <= max * (1 + 1e-9)) out.push(x);
      }
    }
    return out;
  }
  // range puts some room around positive values.
  function range(low, high) {
    if (!(low > 0 && high > 0)) return [.1, 10];
    const room = Math.max((high / low) ** .06, 1.15);
    return [low / room, high * room];
  }

  function make(holder) {
    let plot, data = [[], [], [], []], xs = [1, 1000];
    const axis = label => ({label, labelSize: 20, labelFont: "12px system-ui", font: "12px system-ui", stroke: colour("--muted"), splits,
      grid: {stroke: colour("--grid"), width: 1}, ticks: {stroke: colour("--line"), width: 1}, values: (u, v) => v.map(power), filter: (u, v) => v});
    const positive = () => data.slice(1).flat().filter(y => y > 0);
    function draw() {
      plot?.destroy();
      holder.replaceChildren();
      plot = new uPlot({
        width: Math.max(holder.clientWidth, 200), height: holder.clientHeight, legend: {show: false},
        cursor: {drag: {x: false, y: false}, points: {size: 7}},
        scales: {x: {time: false, distr: 3, log: 10, range: () => xs},
          y: {distr: 3, log: 10, range: () => range(Math.min(...positive()), Math.max(...positive()))}},
        axes: [axis("rounds"), {...axis("ε"), size: 58}],
        series: [{},
          {stroke: colour("--accent"), width: 2.5, spanGaps: true, points: {show: false}},
          {stroke: colour("--muted"), width: 1.5, dash: [6, 5], spanGaps: true, points: {show: false}},
          {stroke: colour("--warn"), width: 0, paths: () => null, points: {show: true, size: 11, fill: colour("--warn"), stroke: colour("--card"), width: 2}}],
      }, data, holder);
    }
    new ResizeObserver(() => {
      if (plot && (plot.width !== holder.clientWidth || plot.height !== holder.clientHeight))
        plot.setSize({width: Math.max(holder.clientWidth, 200), height: holder.clientHeight});
    }).observe(holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    return {
      // set shows points, sorted by rounds: {rounds, upper, basic, here}.
      set(points, from, to) {
        const some = y => y > 0 && Number.isFinite(y) ? y : null;
        xs = to > from ? [from, to] : [from / 2, from * 2];
        data = [points.map(p => p.rounds), ...["upper", "basic", "here"].map(k => points.map(p => some(p[k])))];
        if (plot) plot.setData(data);
        else draw();
      },
    };
  }
  return {make};
})();
