(function () {
  "use strict";
  var views = ["overview", "rounds", "mistakes", "reports", "ledger", "privacy"];
  var tasks = new Map(), order = [], about = null;
  var asked = "", shown = "", view = "overview"; // task of the address, task whose history is here
  var measures = {}, rounds = {};
  var source = null, ended = false, retry = 0, drawn = null;

  function $(id) { return document.getElementById(id); }

  // ---- numbers for people ----

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
    return power(v);
  }
  function power(v) {
    if (v === 0 || (Math.abs(v) >= 1e-4 && Math.abs(v) < 1e7)) return String(v);
    var parts = v.toExponential().split("e"), raised = "";
    parts[1].replace("+", "").split("").forEach(function (c) { raised += c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[+c]; });
    return (parts[0] === "1" ? "" : parts[0] + "·") + "10" + raised;
  }
  function plain(x) { return typeof x !== "number" ? "—" : Math.abs(x) >= 1000 ? group(Math.round(x)) : power(Number(x.toPrecision(4))); }
  // percent rounds as the command line does: of two that are as near to the even one.
  function percent(x) {
    if (typeof x !== "number") return "—";
    var v = 100 * x * 100, n = Math.round(v);
    if (n - v === 0.5 && n % 2) n--;
    return (n / 100).toFixed(2) + " %";
  }
  function group(x) { return String(x).replace(/\B(?=(\d{3})+$)/g, ","); }
  function plural(n, noun) { return group(n) + " " + noun + (n === 1 ? "" : "s"); }
  function time(s) {
    if (typeof s !== "number") return "—";
    if (s < 10) return s.toFixed(1) + " s";
    s = Math.round(s);
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
    return group(Math.floor(s / 3600)) + " h " + (Math.floor(s / 60) % 60) + " min";
  }
  function limited(x) { return typeof x === "number" && x > 0; }

  // ---- the document ----

  function make(tag, props) {
    var e = document.createElement(tag);
    Object.keys(props || {}).forEach(function (k) {
      if (k === "text") e.textContent = props[k]; else if (k === "class") e.className = props[k]; else e.setAttribute(k, props[k]);
    });
    for (var i = 2; i < arguments.length; i++) e.append(arguments[i]);
    return e;
  }
  function text(element, value) { if (element.textContent !== value) element.textContent = value; }
  // fill rebuilds an element only where what it shows has changed, so that focus and
  // selections stay.
  function fill(element, key, build) {
    key = JSON.stringify(key);
    if (element.riffleKey === key) return;
    element.riffleKey = key;
    element.replaceChildren.apply(element, build());
  }
  // row is a line of the table whose body has this id. On a phone it is a card, in
  // which each cell says what it is.
  function row(id, cells) {
    var tr = make("tr", { role: "row" }), heads = $(id).parentNode.tHead.rows[0].cells;
    cells.forEach(function (c, i) {
      var cell = make(i ? "td" : "th", i ? { role: "cell" } : { scope: "row", role: "rowheader" });
      cell.dataset.label = heads[i].textContent;
      if (heads[i].hidden) return;
      if (c && c.nodeType) cell.append(c);
      else if (c && typeof c === "object") { cell.textContent = c.text; cell.className = c.kind; }
      else cell.textContent = c;
      tr.append(cell);
    });
    return tr;
  }
  function tiles(id, list) {
    $(id).classList.toggle("three", list.length === 3);
    fill($(id), list, function () {
      return list.map(function (t) {
        var tile = make("div", { class: "tile " + (t.kind || "") }, make("h3", { text: t.name }), make("p", { class: "value", text: t.value }));
        if (t.share !== undefined) {
          var bar = make("div");
          bar.style.width = Math.min(100, 100 * t.share) + "%";
          var meter = make("div", { class: "meter", role: "meter", "aria-label": t.meter, "aria-valuemin": "0", "aria-valuemax": "100",
            "aria-valuenow": String(Math.min(100, Math.ceil(100 * t.share))) }, bar);
          if (t.near) meter.dataset.near = "";
          tile.append(meter);
        }
        tile.append(make("p", { class: "detail", text: t.detail || "" }));
        return tile;
      });
    });
  }

  // ---- charts ----

  var whole = [];
  for (var e10 = 1; e10 < 1e15; e10 *= 10) whole.push(e10, 2 * e10, 5 * e10);

  function numeric(list) { return (list || []).map(function (v) { return typeof v === "number" ? v : null; }); }
  function perRound(list) { return (list || []).map(function (v, i) { return v / rounds.rounds[i]; }); }

  // rise is by how much the bound rose a round since the measure before.
  function rise() {
    var last = 0, at = 0;
    return (measures.epsilon || []).map(function (v, i) {
      if (typeof v !== "number") return null;
      var by = (v - last) / (measures.round[i] - at);
      last = v; at = measures.round[i];
      return by >= 0 ? by : null;
    });
  }
  // ceiling is where the level line of ε lies.
  function ceiling(t) { return limited(t.budget) ? t.budget : limited(t.planned) ? t.planned : null; }
  function expected(t) { return limited(t.expected) ? t.expected : null; }
  var kinds = {
    accuracy: { name: "Accuracy", colour: "accent", y: function () { return numeric(measures.accuracy); }, x: function () { return measures.round; },
      show: percent, tick: function (t) { return Number((100 * t).toPrecision(6)) + " %"; }, low: 0, high: 1.005,
      hidden: function (t) { return t.numbers || t.question; } },
    loss: { name: "Loss", colour: "amber", y: function () { return numeric(measures.loss); }, x: function () { return measures.round; }, show: plain, tick: plain, low: 0,
      hidden: function (t, view) { return t.question || view === "overview" && !t.numbers; } },
    epsilon: { name: "ε spent", colour: "violet", y: function () { return numeric(measures.epsilon); }, x: function () { return measures.round; },
      show: function (v) { return "ε " + up(v); }, tick: plain, zero: true, level: ceiling,
      hidden: function (t, view) { return view === "overview" && t.question && t.rounds === 1; } },
    charge: { name: "Rise of ε a round", colour: "violet", y: rise, x: function () { return measures.round; }, show: up, tick: plain, zero: true },
    reports: { name: "Reports of a round", colour: "accent", y: function () { return perRound(rounds.reports); }, x: function () { return rounds.round; },
      show: plain, tick: plain, zero: true, level: expected },
    rejected: { name: "Refused reports of a round", colour: "bad", y: function () { return perRound(rounds.rejected); }, x: function () { return rounds.round; }, show: plain, tick: plain, zero: true,
      nothing: function (ys) { return !ys.some(function (v) { return v > 0; }); } }
  };
  var charts = [];

  // reason says why there is nothing to show of a task.
  function reason(t, of) {
    var privacy = of === "epsilon" || of === "charge", model = of === "accuracy" || of === "loss";
    if (privacy && t.epsilon === "inf") return "This run gives no privacy: there is no ε.";
    if (of === "mistakes" && t.numbers) return "The targets are numbers: there are no classes to be taken for each other.";
    if ((model || of === "mistakes") && t.blind) return t.blind;
    if (t.phase === "standby") return "This coordinator stands by: another one runs the task.";
    if (t.phase === "starting") return "The coordinator is starting.";
    if (t.round === 0) return over(t) ? "No round was run." : "No round has ended yet.";
    if (of === "rejected") return "No report was refused.";
    if (of === "reports") return "What came in was not kept.";
    if (privacy) return over(t) ? "ε is not known." : t.eval_every > 1 ? "ε is counted every " + group(t.eval_every) + " rounds." : "ε has not been counted yet.";
    if (t.released === 0 && t.void + t.failed >= t.round) return (t.round === 1 ? "The one round" : "All " + group(t.round) + " rounds") + (over(t) ? "" : " so far") + (t.failed ? " gave no step" : t.round === 1 ? " was void" : " were void") + ": the model is the one it began with.";
    if (t.phase === "evaluating") return "The model is being evaluated.";
    if (over(t)) return of === "mistakes" ? "What the model makes of its examples was not kept." : "What was measured was not kept.";
    return t.eval_every > 1 ? "The model is evaluated every " + group(t.eval_every) + " rounds." : "The model was not evaluated yet.";
  }

  function span(kind, low, high) {
    if (low === null || high === null) return [0, 1];
    if (kind.zero) {
      high = Math.max(high, kind.level && kind.level(tasks.get(shown) || {}) || 0);
      return [0, high > 0 ? high * 1.1 : 1];
    }
    var pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 0.5;
    return [Math.max(low - pad, kind.low === undefined || low < 0 ? -Infinity : kind.low), Math.min(high + pad, kind.high || Infinity)];
  }
  function Chart(box, key) {
    var kind = kinds[key], self = this;
    this.kind = kind;
    this.key_ = key;
    this.readout = make("span", { class: "readout" });
    this.plotBox = make("div", { class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-label": kind.name, "data-chart": key });
    this.empty = make("p", { class: "empty" });
    this.plotBox.append(this.empty);
    this.figure = make("figure", { class: "chart " + kind.colour }, make("figcaption", {}, make("span", { class: "name", text: kind.name }), this.readout), this.plotBox);
    this.view = box.closest(".view").id.slice(5);
    box.append(this.figure);
    this.plotBox.addEventListener("keydown", function (e) { self.key(e); });
    this.plotBox.addEventListener("blur", function () { if (self.plot) self.plot.setCursor({ left: -10, top: -10 }); });
    if (window.ResizeObserver) new ResizeObserver(function () { requestAnimationFrame(function () { self.fit(); }); }).observe(this.plotBox);
    else addEventListener("resize", function () { self.fit(); });
  }
  Chart.prototype.data = function () {
    return [this.kind.x() || [], this.kind.y()];
  };
  Chart.prototype.describe = function (i) {
    var d = this.plot.data;
    return d[1][i] === null || d[1][i] === undefined ? "" : this.kind.show(d[1][i]) + " at round " + group(d[0][i]);
  };
  Chart.prototype.last = function () {
    for (var d = this.plot.data, i = d[0].length - 1; i >= 0; i--) if (d[1][i] !== null) return i;
    return -1;
  };
  Chart.prototype.rest = function () {
    var i = this.last(), d = this.plot.data, first = d[1].findIndex(function (v) { return v !== null; });
    text(this.readout, i < 0 ? "" : this.describe(i));
    this.plotBox.setAttribute("aria-label", this.kind.name + " by round. " + (i < 0 ? "" :
      "From " + this.describe(first) + " to " + this.describe(i) + ". Arrow keys read off points."));
  };
  Chart.prototype.update = function () {
    var t = tasks.get(shown);
    this.figure.hidden = !!(t && this.kind.hidden && this.kind.hidden(t, this.view));
    if (this.figure.hidden) { this.destroy(); return; }
    if (!this.plotBox.clientWidth) return; // its view is hidden
    var data = this.data(), any = data[1].some(function (v) { return v !== null; }) && !(this.kind.nothing && this.kind.nothing(data[1]));
    this.empty.hidden = any;
    if (!any) {
      this.destroy();
      text(this.readout, "");
      text(this.empty, t ? reason(t, this.key_) : "");
      this.plotBox.setAttribute("aria-label", this.kind.name + " by round. " + this.empty.textContent);
      return;
    }
    var zoomed = this.plot && this.plot.riffleZoom;
    if (!this.plot) this.build(data);
    else {
      this.plot.setData(data, !zoomed);
      if (zoomed) this.plot.redraw();
    }
    if (this.plot.cursor.idx === null || this.plot.cursor.left < 0) this.rest();
    else this.rest0();
  };
  Chart.prototype.rest0 = function () {
    var t = this.describe(this.plot.cursor.idx);
    if (t) text(this.readout, t);
  };
  Chart.prototype.destroy = function () {
    if (this.plot) { this.plot.destroy(); this.plot = null; }
  };
  Chart.prototype.fit = function () {
    if (!this.plotBox.clientWidth) return;
    if (!this.plot) return this.update();
    var w = Math.max(120, this.plotBox.clientWidth), h = this.plotBox.clientHeight;
    if (w !== this.plot.width || h !== this.plot.height) this.plot.setSize({ width: w, height: h });
  };
  Chart.prototype.key = function (e) {
    if (!this.plot) return;
    var xs = this.plot.data[0], ys = this.plot.data[1], step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    var i = this.plot.cursor.left >= 0 && typeof this.plot.cursor.idx === "number" ? this.plot.cursor.idx : -1;
    if (e.key === "Escape") { this.plot.setCursor({ left: -10, top: -10 }); return; }
    if (e.key === "Home") { i = -1; step = 1; }
    if (e.key === "End" || (step && i < 0)) { if (e.key !== "Home") { i = xs.length; step = -1; } }
    if (!step) return;
    e.preventDefault();
    do i += step; while (i >= 0 && i < xs.length && ys[i] === null);
    if (i < 0 || i >= xs.length) return;
    this.plot.setCursor({ left: this.plot.valToPos(xs[i], "x"), top: this.plot.valToPos(ys[i], "y") });
    text($("spoken"), this.kind.name + ": " + this.describe(i));
  };
  Chart.prototype.build = function (data) {
    var self = this, kind = this.kind, style = getComputedStyle(this.plotBox);
    function colour(name) { return style.getPropertyValue(name).trim(); }
    var ink = colour("--muted"), grid = colour("--grid"), line = colour("--series");
    var font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
    function axis(extra) { return Object.assign({ stroke: ink, font: font, grid: { stroke: grid, width: 1 }, ticks: { show: false } }, extra); }
    var series = [{}, {
      stroke: line, width: 2, spanGaps: true,
      fill: function (u) {
        var shade = u.ctx.createLinearGradient(0, u.bbox.top, 0, u.bbox.top + u.bbox.height);
        shade.addColorStop(0, line + "38");
        shade.addColorStop(1, line + "05");
        return shade;
      },
      points: { show: function (u) { return u.data[0].length <= 30; }, size: 6, fill: line, stroke: line }
    }];
    // Under the curve: rounds that gave no step, and the level line.
    function below(u) {
      var c = u.ctx, box = u.bbox, end = box.left + box.width;
      c.save();
      [["void", "--notice-line"], ["failed", "--bad"]].forEach(function (mark) {
        (rounds[mark[0]] || []).forEach(function (n, i) {
          if (!n) return;
          var from = Math.max(box.left, u.valToPos(rounds.round[i] - rounds.rounds[i] + 0.5, "x", true));
          var to = Math.min(end, Math.max(from + 2 * devicePixelRatio, u.valToPos(rounds.round[i] + 0.5, "x", true)));
          if (to <= from) return;
          var share = n / rounds.rounds[i]; // of several rounds that are one bar
          c.fillStyle = colour(mark[1]);
          c.globalAlpha = 0.06 + 0.16 * share;
          c.fillRect(from, box.top, to - from, box.height);
          c.globalAlpha = 0.3 + 0.7 * share;
          c.fillRect(from, box.top + box.height - 4 * devicePixelRatio, to - from, 4 * devicePixelRatio);
        });
      });
      var level = kind.level && kind.level(tasks.get(shown) || {}), at = typeof level === "number" ? u.valToPos(level, "y", true) : -1;
      if (at >= box.top && at <= box.top + box.height) {
        c.strokeStyle = ink;
        c.lineWidth = 1.5 * devicePixelRatio;
        c.setLineDash([5 * devicePixelRatio, 5 * devicePixelRatio]);
        c.beginPath();
        c.moveTo(box.left, at);
        c.lineTo(end, at);
        c.stroke();
      }
      c.restore();
    }
    this.plot = new uPlot({
      width: Math.max(120, this.plotBox.clientWidth), height: this.plotBox.clientHeight, padding: [8, 14, 0, 0], legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false }, points: { size: 9, fill: line, stroke: colour("--card"), width: 2 } },
      scales: {
        x: { time: false, range: function (u, low, high) {
          if (low === null) return [0, 1];
          var xs = u.data[0];
          if (xs.length === 1) return [Math.max(0, xs[0] - 1), xs[0] + 0.5]; // it is asked for more
          return high - low < 60 ? [low - 0.5, high + 0.5] : [low, high]; // so that a mark is as wide as its round
        } },
        y: { range: function (u, low, high) { return span(kind, low, high); } }
      },
      axes: [
        axis({ size: 34, gap: 6, space: 56, incrs: whole, values: function (u, ticks) { return ticks.map(group); } }),
        axis({ size: 62, gap: 6, space: 36, values: function (u, ticks) { return ticks.map(kind.tick); } })
      ],
      series: series,
      hooks: {
        drawAxes: [below],
        setScale: [function (u, key) {
          if (key !== "x" || !u.data[0].length) return;
          var xs = u.data[0];
          u.riffleZoom = xs.length > 1 && (u.scales.x.min > xs[0] || u.scales.x.max < xs[xs.length - 1]);
        }],
        setCursor: [function (u) {
          if (self.plot !== u) return;
          if (u.cursor.left >= 0 && typeof u.cursor.idx === "number") self.rest0(); else self.rest();
        }],
        draw: [function (u) { // where it stands now
          if (self.plot !== u && self.plot) return;
          var i = -1;
          for (var k = u.data[0].length - 1; k >= 0 && i < 0; k--) if (u.data[1][k] !== null) i = k;
          if (i < 0) return;
          var left = u.valToPos(u.data[0][i], "x", true), top = u.valToPos(u.data[1][i], "y", true);
          if (left < u.bbox.left - 1 || left > u.bbox.left + u.bbox.width + 1) return;
          u.ctx.save();
          u.ctx.setLineDash([]);
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
    }, data, this.plotBox);
  };
  document.querySelectorAll("[data-charts]").forEach(function (box) {
    box.dataset.charts.split(" ").forEach(function (key) { charts.push(new Chart(box, key)); });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
    charts.forEach(function (c) { c.destroy(); c.update(); });
  });

  // ---- views ----

  var states = { running: "running", done: "finished", stopped: "stopped", refused: "refused: the ledger takes no further round",
    paused: "paused", interrupted: "interrupted", failed: "failed" };
  var kindOf = { running: "live", done: "done", refused: "bad", failed: "bad" }; // others: a warning
  function stateOf(t) { return (states[t.state] || t.state) + (t.state === "done" && kind(t) === "warn" ? without(t) : ""); }
  function without(t) { return t.question ? " without an answer" : " without a step"; }
  function kind(t) { return t.state === "done" && t.released === 0 && t.round > 0 ? "warn" : kindOf[t.state] || "warn"; }
  function over(t) { return ["done", "stopped", "refused", "interrupted", "failed"].indexOf(t.state) >= 0; }
  function spentOf(t) {
    if (t.epsilon === "inf") return { name: "ε spent", value: "∞", kind: "violet", detail: "no privacy: nothing is promised" };
    var tile = { name: "ε spent, at most", value: up(t.epsilon), kind: "violet", detail: "" };
    var parts = [];
    if (limited(t.budget)) {
      parts.push("of a budget of " + up(t.budget));
      tile.meter = "ε spent of the budget, in percent";
      tile.share = typeof t.epsilon === "number" ? t.epsilon / t.budget : 0;
      tile.near = tile.share > 0.9 && !t.question; // whose noise is made for its budget
    } else if (limited(t.planned)) {
      parts.push("of " + up(t.planned) + " planned");
      tile.meter = "ε spent of what is planned, in percent";
      tile.share = typeof t.epsilon === "number" ? t.epsilon / t.planned : 0;
    }
    if (typeof t.delta === "number") parts.push("δ = " + power(t.delta));
    if (typeof t.epsilon !== "number") parts.push(reason(t, "epsilon").replace(/\.$/, ""));
    else if (t.state === "running" || t.epsilon_round !== t.round) parts.push("after round " + group(t.epsilon_round));
    tile.detail = parts.join(" · ");
    return tile;
  }
  function baseline(t) { return t.baseline ? "; best constant " + t.baseline : ""; }
  function refusedOf(t) { return t.rejected.reduce(function (n, r) { return n + r.count; }, 0); }

  var render = {
    overview: function (t) {
      var share = t.rounds > 0 ? Math.min(1, t.round / t.rounds) : 0;
      $("progress").dataset.kind = kind(t);
      $("progress").firstElementChild.style.width = 100 * share + "%";
      $("progress").setAttribute("aria-valuemax", t.rounds);
      $("progress").setAttribute("aria-valuenow", t.round);
      var words = ["Round " + group(t.round) + " of " + group(t.rounds)];
      if (t.state === "running") {
        if (t.phase) words.push(t.phase);
        if (t.opened > 0 && limited(t.expected)) words.push(group(t.opened) + " of about " + group(Math.round(t.expected)) + " reports of the next");
      }
      words.push(time(t.seconds));
      var each = measures.round && measures.round.length > 1 ? // of late, not since an earlier process
        (measures.seconds[measures.seconds.length - 1] - measures.seconds[0]) / (measures.round[measures.round.length - 1] - measures.round[0]) : 0;
      if (t.state === "running" && each > 0) words.push("about " + time((t.rounds - t.round) * each) + " left");
      text($("progress-text"), words.join(" · "));
      var refused = refusedOf(t);
      tiles("tiles", [
        { name: "Accuracy", value: percent(t.accuracy), kind: "accent", detail: typeof t.accuracy !== "number" ? reason(t, "accuracy") : (t.evaluated ? "on " + t.evaluated : "") + baseline(t) },
        { name: "Loss", value: plain(t.loss), kind: "amber", detail: typeof t.loss !== "number" ? (t.numbers ? reason(t, "loss") : "") : t.numbers && t.evaluated ? "mean over " + t.evaluated + baseline(t) : "mean over the same examples" },
        spentOf(t),
        { name: t.question ? "Reports in the answer" : "Reports in the model", value: group(t.reports), detail: refused ? plural(refused, "report") + " refused" : "none refused" }
      ].slice(t.question ? 2 : t.numbers ? 1 : 0));
      showAnswer(t);
      fill($("facts"), t.facts, function () {
        return t.facts.map(function (f) { return make("div", {}, make("dt", { text: f.name }), make("dd", { text: f.value })); });
      });
      var parts = [];
      if (t.report) parts.push(make("a", { href: "report", text: "The report of this run" }));
      if (t.dir) parts.push(" Files: ", make("code", { text: t.dir }));
      $("files").hidden = !parts.length;
      fill($("files"), [t.report, t.dir], function () { return parts; });
      $("tasks-block").hidden = order.length < 2;
      var list = newest();
      fill($("tasks"), list.map(function (x) { return [x.id, x.name, x.state, x.round, x.rounds, x.accuracy, x.epsilon, x.budget, x.planned, x.void, x.question]; }), function () {
        return list.map(function (x) {
          return row("tasks", [make("a", { href: "#/overview/" + x.id, text: x.name }), { text: doing(x.question), kind: "text" }, { text: stateOf(x).split(":")[0], kind: "is-" + kind(x) },
            group(x.round) + " of " + group(x.rounds) + (x.void ? ", " + group(x.void) + " void" : ""),
            percent(x.accuracy), up(x.epsilon), limited(x.budget) ? up(x.budget) : limited(x.planned) ? up(x.planned) + " planned" : "none"]);
        });
      });
    },
    rounds: function (t) {
      var words = t.charge ? "A round is charged as: " + t.charge + "." : "";
      if (t.method) words += " Bound: " + t.method + (t.source ? " (" + t.source + ")" : "") + ".";
      text($("charge"), words);
      var n = (measures.round || []).length, by = rise(), list = [];
      for (var i = n - 1; i >= Math.max(0, n - 12); i--) {
        list.push([group(measures.round[i]), outcome(i), up(measures.epsilon[i]), up(by[i]), percent(measures.accuracy[i]), plain(measures.loss[i])]);
      }
      $("latest").parentNode.tHead.rows[0].cells[4].hidden = t.numbers;
      $("latest-block").hidden = !n;
      $("latest-none").hidden = n > 0;
      text($("latest-none"), n ? "" : reason(t, "loss"));
      fill($("latest"), [list, t.numbers], function () { return list.map(function (cells) { return row("latest", cells); }); });
    },
    mistakes: function (t) {
      var have = t.examined >= 0 && examined.task === t.id;
      $("mistakes-block").hidden = !have || !examined.matrix;
      if (t.examined >= 0) refresh("mistakes", "api/examined?task=" + encodeURIComponent(t.id), t.id + "/" + t.examined, function (x) { showExamined(t.id, x); });
      text($("mistakes-sub"), t.examined < 0 ? reason(t, "mistakes") : !have ? "Asking …" : !examined.matrix ? reason(t, "mistakes") :
        "After round " + group(examined.round) + ", on " + (t.evaluated || "the evaluation examples") + ": " + examined.matrix.right + ". " +
        (examined.matrix.rows ? "Rows are true classes, columns what they were taken for; mistakes are shaded by their share of the class, relative to the largest." : "With so many classes the full matrix is left out."));
    },
    reports: function (t) {
      var refused = refusedOf(t);
      tiles("report-tiles", [
        { name: "Rounds released", value: group(t.released), kind: "accent", detail: "a step was taken" },
        { name: "Rounds void", value: group(t.void), kind: t.void ? "amber" : "", detail: "too few reports: nothing released, nothing charged" },
        { name: "Rounds failed", value: group(t.failed), kind: t.failed ? "amber" : "", detail: "charged, but gave no step" },
        { name: "Reports refused", value: group(refused), kind: refused ? "amber" : "", detail: refused === 0 ? "" : (refused / (refused + t.reports) < 1e-4 ? "less than 0.01 %" : percent(refused / (refused + t.reports))) + " of all" }
      ]);
      $("rejected-none").hidden = t.rejected.length > 0;
      $("rejected-block").hidden = t.rejected.length === 0;
      fill($("rejected"), t.rejected, function () {
        return t.rejected.map(function (r) { return row("rejected", [r.reason, { text: reasons[r.reason] || "", kind: "words" }, group(r.count)]); });
      });
      var all = t.stages.reduce(function (n, s) { return n + s.seconds; }, 0);
      var list = t.stages.map(function (s) {
        return [s.name, time(s.seconds), all > 0 ? Math.round(1000 * s.seconds / all) / 10 : 0,
          s.items > 0 && s.seconds > 0 ? plain(s.items / s.seconds) + " " + s.unit + "/s" : "—"];
      });
      $("stages-block").hidden = !list.length;
      $("stages-none").hidden = list.length > 0;
      text($("stages-none"), list.length ? "" : over(t) ? "Nothing was done for this task since riffle was started last." : "Nothing was done yet.");
      fill($("stages"), list, function () {
        return list.map(function (s) {
          var bar = make("div", { class: "share", role: "img", "aria-label": s[2] + " %" });
          bar.style.width = s[2] + "%";
          return row("stages", [s[0], s[1], bar, s[3]]);
        });
      });
    },
    ledger: function () { refresh("ledger", "api/ledger", chargedKey(), showLedger); },
    privacy: function (t) {
      refresh("privacy", "api/statement?task=" + encodeURIComponent(t.id), t.id + t.epsilon + t.epsilon_round + t.state, showStatement);
    }
  };
  var reasons = {
    "malformed": "no message of this version", "wrong-size": "another size than announced", "wrong-key": "sealed to a key that is not held: an old key, or not openable",
    "unknown-round": "no such round", "closed": "after the deadline: a slow client, or its clock", "not-enrolled": "a stranger",
    "bad-signature": "a stranger, or changed on the way", "expired": "of another time: a client's clock", "not-drawn": "not among the round's clients",
    "duplicate": "the same report again: it counts once", "second-report": "another report of the same client: one is kept", "too-many": "over a rate or a size limit",
    "unavailable": "the store did not take it: it is sent again", "out-of-range": "opened, but no report of the mechanism", "excluded": "the other aggregator could not open it",
    "unequal": "its two parts are not of one report: a liar's", "bad-proof": "it does not prove that its vector is short enough: a liar's, or of another round",
    "no-token": "without a token of the registrar for this round", "spent-token": "with a token that another message of the round has",
    "refused": "not allowed by the operator's rules", "old-ledger": "the coordinator's ledger is older than one that was seen before"
  };

  // refresh asks again when the key has changed, one question at a time and at most
  // one a second.
  var fetched = {};
  function refresh(name, url, key, then) {
    var f = fetched[name] = fetched[name] || { key: null, busy: false };
    if (f.key === key || f.busy || ended) return;
    f.busy = true;
    fetch(url, { credentials: "same-origin" }).then(function (r) { return r.ok ? r.json() : null; }).then(function (v) {
      f.key = key;
      if (v) then(v);
    }, function () {}).then(function () {
      setTimeout(function () { f.busy = false; if (view === name) draw(); }, 1000);
    });
  }
  function chargedKey() { return order.map(function (id) { return tasks.get(id).charged + "/" + tasks.get(id).epsilon; }).join(); }

  function showLedger(l) {
    var spent = { name: l.tasks.length > 1 ? "ε of all tasks together, at most" : "ε spent, at most", value: up(l.epsilon), kind: "violet", detail: l.method ? "by " + l.method : "" };
    if (limited(l.budget)) {
      spent.share = typeof l.epsilon === "number" ? l.epsilon / l.budget : 0;
      spent.meter = "ε spent of the budget, in percent";
      spent.near = spent.share > 0.9;
    }
    tiles("ledger-tiles", [
      { name: "Entries", value: group(l.entries), detail: l.digest ? "the last is " + l.digest.slice(0, 16) + "…" : "" }, spent,
      { name: "Budget", value: limited(l.budget) ? plain(l.budget) : "none", detail: "δ = " + (typeof l.delta === "number" ? power(l.delta) : "—") }
    ]);
    $("ledger-tasks-block").hidden = l.tasks.length < 2;
    fill($("ledger-tasks"), l.tasks, function () {
      return l.tasks.slice().reverse().map(function (t) { return row("ledger-tasks", [t.name, { text: doing(t.asks), kind: "text" }, group(t.entries), group(t.round), up(t.epsilon), power(t.delta)]); });
    });
    $("ledger-none").hidden = l.lines.length > 0;
    $("ledger-block").hidden = l.lines.length === 0;
    function fromTo(a, b) { return a === b ? group(a) : group(a) + "–" + group(b); }
    fill($("ledger-lines"), l.lines, function () {
      return l.lines.map(function (c) {
        return row("ledger-lines", [fromTo(c.first, c.last), { text: c.task, kind: "text" }, fromTo(c.from, c.to), { text: c.event, kind: "code" }]);
      });
    });
    $("ledger-more").hidden = !l.omitted;
    text($("ledger-more"), plural(l.omitted, "earlier entry").replace("entrys", "entries") + " not shown: riffle ledger show lists all.");
  }
  function doing(question) { return question || "training"; }
  // figure writes a number with two digits of half its interval.
  function figure(x, low, high) {
    var wide = (high - low) / 2;
    if (typeof x !== "number" || !(wide > 0)) return plain(x);
    var digits = Math.max(0, Math.min(12, 1 - Math.floor(Math.log10(wide))));
    if (Math.abs(x) >= 1e9) return power(Number(x.toPrecision(7)));
    var parts = x.toFixed(digits).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−").split(".");
    return group(parts[0]) + (parts[1] ? "." + parts[1] : "");
  }
  function showAnswer(t) {
    var a = t.answer;
    $("answer-block").hidden = !t.question && !a;
    if (!t.question && !a) return;
    text($("answer-title"), t.question ? t.question.charAt(0).toUpperCase() + t.question.slice(1) : "On clients' own rows");
    text($("answer-what"), a ? a.what : "Number");
    $("answer").parentNode.parentNode.hidden = !a;
    text($("answer-note"), a ? a.note || "" : over(t) ? "The task has no answer." : "There is no answer yet: it is released when its round has ended.");
    $("answer-drawn").hidden = !(a && a.bars);
    fill($("answer"), [t.id, a], function () {
      if (!a) return [];
      var low = 0, high = 1e-9;
      a.rows.forEach(function (r) { low = Math.min(low, r.joint_low, r.value); high = Math.max(high, r.joint_high, r.value); });
      function at(x) { return 100 * (x - low) / (high - low); }
      return a.rows.map(function (r) {
        function between(x, y) { return figure(x, r.low, r.high) + " to " + figure(y, r.low, r.high); }
        var cells = [r.name, figure(r.value, r.low, r.high), between(r.low, r.high), between(r.joint_low, r.joint_high)];
        if (r.high >= 1e100) cells = [r.name, "not known", "too much noise", ""]; // a coefficient
        if (a.bars) {
          var box = make("div", { class: "bar-box", role: "img", "aria-label": figure(r.value, r.low, r.high) });
          var bar = make("div", { class: "bar-of" }), joint = make("div", { class: "joint-of" }), whisker = make("div", { class: "whisker-of" });
          [[bar, Math.min(0, r.value), Math.max(0, r.value)], [joint, r.joint_low, r.joint_high], [whisker, r.low, r.high]].forEach(function (p) {
            p[0].style.left = at(p[1]) + "%";
            p[0].style.width = at(p[2]) - at(p[1]) + "%";
            box.append(p[0]);
          });
          cells.push(box);
        } else cells.push("");
        return row("answer", cells);
      });
    });
  }
  var examined = {}; // of which task, and what
  function showExamined(id, x) {
    examined = x;
    x.task = id;
    var m = x.matrix;
    if (!m) return;
    var long = m.classes.some(function (c) { return c.length > 3; });
    $("matrix").className = "matrix" + (long ? " long" : "") + (m.classes.length > 12 ? " many" : "");
    $("matrix-block").hidden = !m.rows;
    fill($("matrix"), m.rows, function () {
      var head = make("tr", {}, make("td", { class: "corner" }));
      m.classes.forEach(function (c) { head.append(make("th", { scope: "col" }, make("span", { text: c }))); });
      head.append(make("th", { scope: "col", class: "recall", text: "recall" }));
      var body = make("tbody");
      (m.rows || []).forEach(function (r) {
        var tr = make("tr", {}, make("th", { scope: "row", text: r.class }));
        r.cells.forEach(function (c) { tr.append(make("td", { class: c.shade || "none", title: c.label, text: c.count })); });
        tr.append(make("td", { class: "recall", text: r.recall }));
        body.append(tr);
      });
      return [make("thead", {}, head), body];
    });
    fill($("mistakes-list"), m.mistakes, function () {
      return (m.mistakes || []).map(function (e) {
        return make("li", {}, make("span", {}, make("b", { text: e.true }), " taken for ", make("b", { text: e.predicted })), " ", make("span", { class: "many", text: e.count + ", " + e.share + " of its class" }));
      });
    });
    $("mistakes-list").parentNode.hidden = !(m.mistakes || []).length;
    fill($("samples"), x.samples || [], function () {
      return (x.samples || []).map(function (g) {
        var list = make("ul", { class: "samples" + (g.wrong ? " wrong" : "") + (long ? " long" : "") });
        g.samples.forEach(function (s) {
          var li = make("li");
          if (s.image) li.append(make("img", { src: s.image, alt: "an example of " + s.true, width: s.width, height: s.height }));
          li.append(make("span", { class: "said" }, make("b", { text: s.predicted }), " ", make("span", { class: "sure", text: s.confidence || "" })));
          if (g.wrong) li.append(make("span", { class: "truth", text: "is " + s.true }));
          list.append(li);
        });
        return make("div", {}, make("h3", { text: g.name }), list);
      });
    });
  }
  // outcome says what became of the rounds up to measure i since the one before.
  function outcome(i) {
    var last = measures.round[i], before = i ? measures.round[i - 1] : 0, all = 0, none = 0, failed = 0;
    (rounds.round || []).forEach(function (r, k) {
      if (r <= before || r > last) return;
      all += rounds.rounds[k];
      none += rounds.void[k];
      failed += rounds.failed[k];
    });
    if (all !== last - before) return "—"; // neighbouring rounds were put together otherwise
    var parts = [];
    [[all - none - failed, "released"], [none, "void"], [failed, "failed"]].forEach(function (p) {
      if (p[0]) parts.push(all === 1 ? p[1] : group(p[0]) + " " + p[1]);
    });
    return { text: parts.join(", "), kind: failed ? "is-bad" : none ? "is-warn" : "" };
  }
  // marks says what is drawn besides the curves.
  function marks(t) {
    document.querySelectorAll(".marks").forEach(function (p) {
      var list = [], level = p.closest(".view").id === "view-reports" ? expected(t) : t.question && t.rounds === 1 ? null : ceiling(t);
      if (level !== null && measures.round && measures.round.length) {
        list.push(["dashed", p.closest(".view").id === "view-reports" ? "about " + plain(level) + " reports are expected of a round" :
          limited(t.budget) ? "the budget, ε = " + up(level) : "what all rounds together will cost, ε = " + up(level)]);
      }
      if (t.void) list.push(["void", plural(t.void, "void round") + ": too few reports, so that nothing was released or charged"]);
      if (t.failed) list.push(["failed", plural(t.failed, "failed round") + ": charged, but" + without(t)]);
      p.hidden = !list.length;
      fill(p, list, function () {
        return list.map(function (m) { return make("span", { class: "mark" }, make("span", { class: "swatch " + m[0] }), m[1]); });
      });
    });
  }
  function newest() { return order.map(function (id) { return tasks.get(id); }).reverse(); }
  function showStatement(s) {
    text($("lead"), s.lead);
    fill($("parts"), s.parts, function () {
      return s.parts.map(function (p) {
        var box = make("div", { class: "part" }, make("h3", { text: p.heading }));
        if (p.list) box.append(make.apply(null, ["ul", {}].concat(p.text.map(function (x) { return make("li", { text: x }); }))));
        else p.text.forEach(function (x) { box.append(make("p", { text: x })); });
        return box;
      });
    });
    $("note").hidden = !s.note;
    text($("note"), s.note || "");
  }

  var pending = false;
  function draw() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(function () { pending = false; drawNow(); });
    setTimeout(function () { if (pending) { pending = false; drawNow(); } }, 300); // a hidden page has no frames
  }
  function drawNow() {
    var t = tasks.get(shown);
    $("none").hidden = !about || order.length > 0;
    views.forEach(function (v) { $("view-" + v).hidden = v !== view || !about || (!t && v !== "ledger"); });
    if (!about) return;
    text($("version"), about.version);
    $("nav-ledger").hidden = !about.ledger;
    $("chooser").hidden = order.length < 2 || view === "ledger"; // which is of all tasks
    fill($("task"), newest().map(function (x) { return [x.id, x.name]; }), function () {
      return newest().map(function (x) { return make("option", { value: x.id, text: x.name }); });
    });
    $("task").value = shown;
    var whole = view === "ledger" && order.length !== 1;
    text($("title"), whole ? about.title : t && (order.length > 1 || !about.title || t.name === about.title) ? t.name : t ? about.title + " · " + t.name : about.title);
    text($("state"), whole ? "all tasks of its population" : t ? stateOf(t) + (t.state !== "running" && t.state !== "done" && t.why ? ": " + t.why : "") : "");
    $("state").dataset.kind = !whole && t ? kind(t) : "";
    $("why").hidden = !(t && t.why && t.state === "running");
    text($("why"), t && t.why ? t.why : "");
    $("warning").hidden = whole || !(t && t.warning);
    text($("warning"), t && t.warning ? "Warning: " + t.warning + "." : "");
    document.title = (t ? t.name + " · round " + t.round + " of " + t.rounds : about.title) + " · riffle";
    if (t) marks(t);
    if (t || view === "ledger") render[view](t);
    charts.forEach(function (c) { c.update(); });
    if (t && measures.round && !drawn) drawn = performance.mark("riffle-drawn"); // for who measures how long it took
  }

  // ---- routes: #/view or #/view/task ----

  function route() {
    if (location.hash && location.hash.indexOf("#/") !== 0) return; // the skip link
    var parts = location.hash.slice(2).split("/");
    var next = views.indexOf(parts[0]) >= 0 ? parts[0] : "overview";
    var moved = next !== view, task = parts[1] || "";
    view = next;
    document.querySelectorAll("#nav a").forEach(function (a) {
      var at = (a.getAttribute("href") || "").split("/")[1];
      if (a.getAttribute("href").indexOf("#/") !== 0) return;
      if (at === view) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
      if (at === view && moved) a.scrollIntoView({ inline: "nearest", block: "nearest" });
      a.setAttribute("href", "#/" + at + (task ? "/" + task : ""));
    });
    if (task !== asked) {
      asked = task;
      if (task !== "" && task !== shown) { if (!ended) connect(); }
    }
    drawNow();
    if (moved) scrollTo(0, 0);
  }
  addEventListener("hashchange", route);
  $("task").addEventListener("change", function () { location.hash = "#/" + view + "/" + this.value; });
  document.querySelector(".skip").addEventListener("click", function (e) {
    e.preventDefault();
    $("main").focus();
  });

  // ---- news ----

  function pill(kind, words) {
    $("live").dataset.kind = kind;
    text($("live"), words);
  }
  function allOver() { return order.length > 0 && newest().every(over); }
  // standing is how it stands with all tasks, in a word.
  function standing(more) {
    if (!allOver()) return pill("live", "live");
    var list = newest(), same = list.every(function (t) { return t.state === list[0].state; });
    pill(same ? kind(list[0]) : "wait", (same ? stateOf(list[0]).split(":")[0] : "all tasks have ended") + (more || ""));
  }
  function put(t) {
    if (!tasks.has(t.id)) order.push(t.id);
    tasks.set(t.id, t);
  }
  function replace(into, part) {
    Object.keys(part).forEach(function (k) {
      if (k !== "from") into[k] = (into[k] || []).slice(0, part.from).concat(part[k] || []);
    });
  }
  function connect() {
    clearTimeout(retry);
    if (source) source.close();
    var mine = source = new EventSource("api/events" + (asked ? "?task=" + encodeURIComponent(asked) : ""));
    function on(name, f) {
      mine.addEventListener(name, function (e) { if (mine === source) { f(JSON.parse(e.data)); draw(); } });
    }
    on("about", function (a) {
      about = a;
      tasks.clear();
      order = [];
      a.tasks.forEach(put);
      extras(a.extra);
      if (asked && !tasks.has(asked) && order.length) { location.hash = "#/" + view; asked = ""; setTimeout(connect, 0); }
      standing();
    });
    on("task", function (t) {
      var first = order.length === 0;
      put(t);
      standing();
      if (first && !shown) setTimeout(connect, 0);
    });
    on("removed", function (id) {
      tasks.delete(id);
      order = order.filter(function (x) { return x !== id; });
      if (asked === id || shown === id) { location.hash = "#/" + view; asked = ""; setTimeout(connect, 0); }
      standing();
    });
    on("history", function (h) {
      if (h.task !== shown) { shown = h.task; measures = {}; rounds = {}; charts.forEach(function (c) { c.destroy(); }); }
      replace(measures, h.measures);
      replace(rounds, h.rounds);
    });
    on("end", function () {
      mine.close();
      if (allOver()) {
        ended = true;
        standing("; riffle has exited");
        tasks.forEach(function (t) { t.report = false; });
      } else lost("riffle has stopped");
    });
    mine.onerror = function () {
      if (mine !== source || ended) return;
      if (mine.readyState === EventSource.CLOSED) lost("no connection");
      else pill("lost", "connection lost, trying again");
    };
  }
  function lost(words) {
    pill("lost", words);
    clearTimeout(retry);
    retry = setTimeout(connect, 5000);
  }
  function extras(names) {
    names.forEach(function (name) {
      if ($("nav-" + name)) return;
      $("nav").append(make("li", { id: "nav-" + name }, make("a", { href: name + "/", text: name[0].toUpperCase() + name.slice(1) })));
    });
  }
  route();
  connect();
})();
