(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("data").textContent);
  var plots = [];

  // up rounds a bound so that nobody reads less than was proved.
  function up(x) {
    if (x === "inf") return "∞";
    if (typeof x !== "number") return "—";
    if (x === 0) return "0";
    var v = Number(x.toPrecision(4));
    if (v < x) {
      var step = Math.pow(10, Math.floor(Math.log10(x)) - 3);
      v = Number(((Math.round(v / step) + 1) * step).toPrecision(4));
    }
    return String(v);
  }
  function plain(x) {
    return typeof x === "number" ? String(Number(x.toPrecision(4))) : "—";
  }
  // percent rounds as the command line does: of two that are as near to the even one.
  function percent(x) {
    if (typeof x !== "number") return "—";
    var v = 100 * x * 100, n = Math.round(v);
    if (n - v === 0.5 && n % 2) n--;
    return (n / 100).toFixed(2) + " %";
  }
  function group(x) {
    return String(x).replace(/\B(?=(\d{3})+$)/g, ",");
  }
  var show = {
    round: function (x) { return "round " + group(x); },
    epsilon: function (x) { return "ε " + up(x); },
    accuracy: percent,
    loss: plain
  };

  // columns picks the points that can be drawn. A missing y leaves a gap; a
  // missing x leaves the point out. uPlot wants x in ascending order.
  function columns(x, y) {
    var points = [];
    (data[x] || []).forEach(function (v, i) {
      if (typeof v === "number") points.push([v, typeof data[y][i] === "number" ? data[y][i] : null, i]);
    });
    points.sort(function (a, b) { return a[0] - b[0] || a[2] - b[2]; });
    return [points.map(function (p) { return p[0]; }), points.map(function (p) { return p[1]; })];
  }

  function lastDrawn(ys) {
    for (var i = ys.length - 1; i >= 0; i--) if (ys[i] !== null) return i;
    return -1;
  }

  function span(low, high, floor, ceiling) {
    if (low === null || high === null) return [0, 1];
    var pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 0.5;
    return [Math.max(low - pad, floor), Math.min(high + pad, ceiling)];
  }
  var range = {
    accuracy: function (u, low, high) { return span(low, high, 0, 1.005); },
    loss: function (u, low, high) { return span(low, high, low >= 0 ? 0 : -Infinity, Infinity); },
    epsilon: function (u, low, high) { return [0, high > 0 ? high * 1.08 : 1]; }
  };
  function rangeX(u, low, high) {
    if (low === null) return [0, 1];
    return low === high ? [low - (low > 0 ? low / 2 : 0), high + (high / 2 || 1)] : [low, high];
  }

  var whole = [];
  for (var e = 1; e < 1e15; e *= 10) whole.push(e, 2 * e, 5 * e);

  function build(element) {
    var x = element.dataset.x, y = element.dataset.y;
    var style = getComputedStyle(element);
    function colour(name) { return style.getPropertyValue(name).trim(); }
    var ink = colour("--soft"), grid = colour("--grid"), line = colour("--series");
    var readout = element.parentNode.querySelector(".readout"), rest = readout.textContent;
    var xy = columns(x, y), end = lastDrawn(xy[1]);
    var font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
    function axis(extra) {
      return Object.assign({ stroke: ink, font: font, grid: { stroke: grid, width: 1 }, ticks: { show: false } }, extra);
    }
    var plot = new uPlot({
      width: Math.max(120, element.clientWidth), height: element.clientHeight,
      padding: [8, 14, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false },
        points: { size: 9, fill: line, stroke: colour("--card"), width: 2 },
        sync: x === "round" ? { key: "rounds", scales: ["x", null] } : undefined
      },
      scales: { x: { time: false, range: rangeX }, y: { range: range[y] } },
      axes: [
        axis({ size: 34, gap: 6, space: 56, incrs: x === "round" ? whole : undefined,
          values: function (u, ticks) { return ticks.map(function (t) { return x === "round" ? group(t) : plain(t); }); } }),
        axis({ size: 64, gap: 6, space: 36,
          values: function (u, ticks) {
            return ticks.map(function (t) { return y === "accuracy" ? Number((100 * t).toPrecision(6)) + " %" : plain(t); });
          } })
      ],
      series: [{}, {
        stroke: line, width: 2,
        fill: function (u) {
          var shade = u.ctx.createLinearGradient(0, u.bbox.top, 0, u.bbox.top + u.bbox.height);
          shade.addColorStop(0, line + "38");
          shade.addColorStop(1, line + "05");
          return shade;
        },
        points: { show: xy[0].length <= 30, size: 6, fill: line, stroke: line }
      }],
      hooks: {
        setCursor: [function (u) {
          var i = u.cursor.idx;
          var live = i !== null && i !== undefined && u.cursor.left >= 0 && u.data[1][i] !== null;
          readout.textContent = live ? show[y](u.data[1][i]) + " at " + show[x](u.data[0][i]) : rest;
        }],
        draw: [function (u) { // the figure that counts: where the run ended
          if (end < 0) return;
          var left = u.valToPos(xy[0][end], "x", true), top = u.valToPos(xy[1][end], "y", true);
          if (left < u.bbox.left - 1 || left > u.bbox.left + u.bbox.width + 1) return;
          u.ctx.save();
          u.ctx.beginPath();
          u.ctx.arc(left, top, 4.5 * devicePixelRatio, 0, 2 * Math.PI);
          u.ctx.fillStyle = line;
          u.ctx.strokeStyle = colour("--card");
          u.ctx.lineWidth = 2 * devicePixelRatio;
          u.ctx.fill();
          u.ctx.stroke();
          u.ctx.restore();
        }]
      }
    }, xy, element);
    return { element: element, plot: plot, readout: readout, rest: rest };
  }

  function draw() {
    plots.forEach(function (p) { p.plot.destroy(); p.readout.textContent = p.rest; });
    plots = Array.prototype.map.call(document.querySelectorAll(".plot"), build);
  }
  function fit() {
    plots.forEach(function (p) {
      var width = Math.max(120, p.element.clientWidth), height = p.element.clientHeight;
      if (width !== p.plot.width || height !== p.plot.height) p.plot.setSize({ width: width, height: height });
    });
  }
  draw();
  if (window.ResizeObserver) {
    var observer = new ResizeObserver(function () { requestAnimationFrame(fit); });
    document.querySelectorAll(".plot").forEach(function (element) { observer.observe(element); });
  } else {
    addEventListener("resize", fit);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  // Paper is white and narrow: draw once more in light colours, at its width.
  addEventListener("beforeprint", function () {
    document.documentElement.dataset.print = "";
    document.body.style.width = "690px";
    draw();
  });
  addEventListener("afterprint", function () {
    delete document.documentElement.dataset.print;
    document.body.style.width = "";
    draw();
  });

  // The table is made when it is first opened; long runs have many rows.
  var details = document.getElementById("points");
  if (details) details.addEventListener("toggle", function () {
    var body = document.querySelector("#points-table tbody");
    if (!details.open || body.rows.length) return;
    data.round.forEach(function (r, i) {
      var row = body.insertRow();
      [group(r), up(data.epsilon[i]), percent(data.accuracy[i]), plain(data.loss[i]), plain(data.seconds[i])].forEach(function (text) {
        row.insertCell().textContent = text;
      });
    });
  });

  document.querySelectorAll(".copy").forEach(function (button) {
    button.addEventListener("click", function () {
      var source = document.getElementById(button.dataset.copy);
      function done(ok) {
        button.textContent = ok ? "Copied" : "Press Ctrl+C";
        document.getElementById("copied").textContent = ok ? "Command copied" : "Command selected, press Ctrl+C";
        setTimeout(function () { button.textContent = "Copy"; }, 2000);
      }
      function select() { // where the clipboard is not to be had
        var selection = getSelection(), whole = document.createRange();
        whole.selectNodeContents(source);
        selection.removeAllRanges();
        selection.addRange(whole);
        done(document.execCommand("copy"));
      }
      if (navigator.clipboard) navigator.clipboard.writeText(source.textContent).then(function () { done(true); }, select);
      else select();
    });
  });
})();
