"use strict";
(() => {
  const {fields, participations, randomizers, single, shown, defaults, write, read, positions, position, atPosition, step, toHash, fromHash, question, command} = riffleSettings;
  const $ = id => document.getElementById(id);
  const make = (tag, props = {}, ...inside) => {
    const e = Object.assign(document.createElement(tag), props);
    e.append(...inside);
    return e;
  };
  const settle = 90; // ms without a change after which the setting counts
  const linger = 50; // ms that a step lasts before it is named

  let setting = defaults();
  const wrong = new Map(); // field → what is wrong with its text
  const chart = riffleChart.make($("curve"));
  const answers = new riffleAccountant.Desk(), curve = new riffleAccountant.Desk();

  // Numbers of bounds are shown with four digits, never on the tighter side.
  function digits(x, up) {
    if (x === "inf" || x === Infinity) return "∞";
    let t = Number(x.toPrecision(4));
    if (x !== 0 && (up ? t < x : t > x)) {
      const unit = 10 ** (Math.floor(Math.log10(x)) - 3);
      t = Number(((up ? Math.floor(x / unit) + 1 : Math.ceil(x / unit) - 1) * unit).toPrecision(4));
    }
    return t !== 0 && (t < 1e-3 || t >= 1e6) ? t.toExponential().replace("e+", "e") : String(t);
  }
  const exact = x => x === "inf" ? Infinity : x;

  // ---- controls

  const controls = {}; // field → its elements
  function build() {
    const choice = (name, label, of) => {
      const select = make("select", {id: name}), hint = make("p", {className: "hint", id: name + "-hint"});
      for (const [value, [text]] of Object.entries(of)) select.append(make("option", {value}, text));
      select.setAttribute("aria-describedby", hint.id);
      select.addEventListener("change", () => { setting[name] = select.value; changed(); });
      const field = make("div", {className: "field choice"}, make("label", {htmlFor: name}, label), select, hint);
      controls[name] = {field, select, hint, of};
      return field;
    };
    $("fields").append(choice("participation", "Who takes part", participations), choice("randomizer", "How a report is randomized", randomizers));
    for (const [name, f] of Object.entries(fields)) {
      if (f.choices) {
        $("fields").append(choice(name, f.label, f.choices));
        continue;
      }
      const box = make("input", {type: "text", id: name, autocomplete: "off", spellcheck: false, inputMode: f.whole ? "numeric" : "text"});
      const hint = make("p", {className: "hint", id: name + "-hint"}, f.hint ?? "");
      const problem = make("p", {className: "problem", id: name + "-problem", hidden: true});
      problem.setAttribute("role", "alert");
      box.setAttribute("aria-describedby", `${hint.id} ${problem.id}`);
      hint.hidden = !f.hint;
      const label = make("label", {htmlFor: name}, make("b", {}, f.symbol), " " + f.label);
      box.addEventListener("input", () => typed(name));
      box.addEventListener("change", () => { if (!wrong.has(name)) box.value = write(setting[name]); });
      if (f.example) {
        box.placeholder = "chosen";
        controls[name] = {field: make("div", {className: "field list"}, label, box, hint, problem), box, hint, problem};
        $("fields").append(controls[name].field);
        continue;
      }
      const slider = make("input", {type: "range", id: name + "-slider", min: 0, max: positions(f), step: 1});
      slider.setAttribute("aria-label", `${f.symbol}, ${f.label}`);
      const field = make("div", {className: "field"}, make("div", {className: "row"}, label, box), slider, hint, problem);
      controls[name] = {field, box, slider, hint, problem};
      slider.addEventListener("input", () => put(name, atPosition(name, Number(slider.value)), true));
      box.addEventListener("keydown", e => {
        const by = {ArrowUp: 1, ArrowDown: -1}[e.key];
        if (!by || wrong.has(name)) return;
        e.preventDefault();
        put(name, step(name, setting[name], by));
      });
      $(f.zero ? "more-fields" : "fields").append(field);
    }
  }

  // put sets a field to a number; what moved the slider leaves it where it is.
  function put(name, x, keepSlider) {
    setting[name] = x;
    wrong.delete(name);
    controls[name].box.value = write(x);
    if (!keepSlider) slide(name);
    changed();
  }
  function slide(name) {
    const {slider} = controls[name];
    if (slider) slider.value = position(name, setting[name]);
  }
  function typed(name) {
    try {
      setting[name] = read(name, controls[name].box.value);
      wrong.delete(name);
      slide(name);
    } catch (e) {
      wrong.set(name, e.message);
    }
    changed();
  }
  // adopt takes over a whole setting.
  function adopt(s) {
    setting = s;
    wrong.clear();
    for (const name of Object.keys(fields)) {
      if (controls[name].box) controls[name].box.value = write(s[name]);
      slide(name);
      if (fields[name].zero && s[name] !== 0) $("more").open = true;
    }
    changed(true);
  }

  function describeControls() {
    const on = shown(setting);
    let more = false;
    for (const [name, {select, hint, of}] of Object.entries(controls)) {
      if (!select) continue;
      select.value = setting[name];
      hint.textContent = of[setting[name]][1];
    }
    for (const name of Object.keys(fields)) {
      const {field, box, slider, problem} = controls[name], trouble = wrong.get(name);
      field.hidden = !on.includes(name);
      if (fields[name].zero && !field.hidden) more = true;
      if (!box) continue;
      slider?.setAttribute("aria-valuetext", write(setting[name]));
      box.setAttribute("aria-invalid", String(trouble !== undefined));
      problem.hidden = trouble === undefined;
      if (problem.textContent !== (trouble ?? "")) problem.textContent = trouble ?? "";
    }
    $("more").hidden = !more;
  }

  // ---- from a change to an answer

  let asking = new AbortController(), timer, loading = true;
  function changed(now) {
    asking.abort();
    clearTimeout(timer);
    describeControls();
    $("link-problem").hidden = true;
    const bad = shown(setting).filter(name => wrong.has(name));
    $("command").replaceChildren(...command(setting).flatMap((w, i) => [i ? " " : "", make("span", {}, w)]));
    if (bad.length) {
      busy(false);
      status("");
      return refuse(`${bad.map(name => fields[name].symbol).join(", ")}: see the setting.`);
    }
    $("answer").classList.add("stale");
    old(true, "words", "curve", "bounds");
    busy(true);
    if (!loading) status("computing…");
    timer = setTimeout(() => evaluate(asking = new AbortController()), now ? 0 : settle);
  }

  async function evaluate({signal}) {
    history.replaceState(null, "", toHash(setting));
    const q = question(setting), began = performance.now();
    // A step is shown once it has lasted a little: the quick ones would flicker.
    let named;
    const step = ({busy, method, done, of}) => {
      clearTimeout(named);
      if (busy) return status("the server is busy; it is asked again…");
      named = setTimeout(() => {
        status(`computing… ${method}, ${done + 1} of ${of}`);
        $("progress").max = of;
        $("progress").value = done;
      }, linger);
    };
    const over = () => clearTimeout(named);
    signal.addEventListener("abort", over);
    try {
      // A proved bound that is quick comes first, and the sharp one takes its place.
      let first;
      if (single(setting)) {
        first = await answers.ask(q, "quick", {signal, fresh: true});
        if (first.document.upper) {
          showAnswer(first.document);
          $("answer").classList.add("stale");
          $("at-delta").textContent += ", at most; refining…";
          status("computing… this is proved; a sharper bound follows");
        }
      }
      const best = await answers.ask(q, "best", {signal, fresh: !first, step});
      over();
      loading = false;
      showAnswer(best.document);
      status(`computing… the other bounds`);
      // The curve has an accountant of its own.
      const drawing = drawCurve(q, best.document, signal);
      drawing.catch(() => {}); // awaited below
      const all = await answers.ask(q, "all", {signal, step});
      over();
      showAnswer(all.document);
      showBounds(all.document);
      $("progress").removeAttribute("value");
      status("computing… the curve");
      await drawing;
      busy(false);
      const ms = a => a.ms < 10 ? a.ms.toFixed(1) : a.ms.toFixed(0);
      status(`${first ? `first bound in ${ms(first)} ms, ` : ""}best in ${ms(best)} ms, everything in ${((performance.now() - began) / 1000).toFixed(1)} s`);
    } catch (e) {
      if (e.name === "AbortError") return; // another setting is being asked
      over();
      busy(false);
      status("");
      refuse(sentence(e.message));
    }
  }

  const sentence = text => {
    const bare = text.replace(/^(account|dp|vecsum|amplify|randomizer|plan): /, "");
    const first = /^\S+ = /.test(bare) ? bare[0] : bare[0].toUpperCase(); // k is not K
    return first + bare.slice(1) + (/[.!?]$/.test(bare) ? "" : ".");
  };
  function busy(on) {
    $("answer").classList.toggle("working", on);
    $("answer").setAttribute("aria-busy", String(on));
    if (on) $("progress").removeAttribute("value");
  }
  function status(text) {
    if ($("status").textContent !== text) $("status").textContent = text;
  }

  // old marks what is still of the setting before.
  const old = (on, ...ids) => ids.forEach(id => $(id + "-card").classList.toggle("old", on));

  // refuse shows that there is no answer, and nothing of an earlier one.
  function refuse(why) {
    old(false, "words", "curve", "bounds");
    $("answer").classList.remove("stale");
    $("upper").textContent = "no answer";
    delete $("upper").dataset.eps;
    for (const id of ["at-delta", "meaning", "curve-note"]) $(id).textContent = "";
    for (const id of ["method", "lower", "local", "factor"]) $(id).textContent = "–";
    describeEdges();
    $("problem").textContent = why;
    $("problem").hidden = false;
    $("bounds").replaceChildren();
    $("refused").hidden = true;
    $("point-rows").replaceChildren();
    chart.set([], 1, 1000);
  }

  // ---- what is shown

  function showAnswer(d) {
    const u = d.upper;
    $("answer").classList.remove("stale");
    old(false, "words");
    $("problem").hidden = u !== null;
    if (u === null) {
      refuse("No proved bound applies to this setting; the list of bounds says why.");
      return;
    }
    const eps = exact(u.eps);
    $("upper").textContent = "ε ≤ " + digits(eps, true);
    $("upper").dataset.eps = eps;
    $("at-delta").textContent = "at δ = " + write(setting.delta);
    $("method").textContent = `${u.method}, ${u.status}`;
    $("lower").textContent = d.lower ? `ε ≥ ${digits(exact(d.lower.eps), false)} (${d.lower.method})` : "–";
    const local = d.local_epsilon ?? d.query.eps0; // 0: of single reports nothing is promised
    $("local").textContent = local > 0 ? `ε ≤ ${digits(local, true)} a round` : "none";
    describeEdges(d.report);
    const factor = Math.exp(eps) * (1 + 1e-15);
    $("factor").textContent = factor < 1e6 ? digits(factor, true) : "above a million";
    $("meaning").textContent = factor < 1e6
      ? `Whatever is observed over all rounds is at most ${digits(factor, true)} times as likely with one client’s data as with any other in their place, plus δ.`
      : "An ε this large is next to no promise.";
    $("meaning").textContent += participationNote();
  }
  const participationNote = () => setting.participation === "once" ? " Every client is in one batch, so more rounds cost nothing." : "";
  // describeEdges says which edges were chosen, if they were.
  function describeEdges(report) {
    const {hint} = controls.edges;
    hint.textContent = setting.edges.length ? "" : report?.edges ? `Chosen for this ε₀: ${report.edges.map(write).join(", ")}.` : "Empty: chosen for ε₀.";
    hint.hidden = setting.edges.length > 0;
  }

  const cell = (text, className = "") => {
    const td = make("td", {className}, text);
    td.setAttribute("role", "cell");
    return td;
  };
  function showBounds(d) {
    old(false, "bounds");
    const rank = {upper: 0, lower: 1, approximate: 2};
    const apply = d.bounds.filter(b => b.eps !== null);
    const order = b => b.kind === "lower" ? -exact(b.eps) : exact(b.eps);
    apply.sort((a, b) => rank[a.kind] - rank[b.kind] || order(a) - order(b));
    $("bounds").replaceChildren(...apply.map(b => {
      const best = d.upper && b.method === d.upper.method;
      const source = b.source + (b.order ? ` (order ${Number(b.order.toPrecision(4))})` : "") + (b.note ? "; " + b.note : "");
      const tr = make("tr", {className: best ? "best" : ""}, cell(digits(exact(b.eps), b.kind !== "lower")), cell(b.method),
        cell(b.kind === b.status ? b.kind : `${b.kind}, ${b.status}`, "kind " + b.kind), cell(source));
      tr.setAttribute("role", "row");
      tr.dataset.method = b.method;
      return tr;
    }));
    const reasons = new Map();
    for (const b of d.bounds) {
      if (b.eps !== null) continue;
      const why = sentence((b.note ?? "").replace(/: no bound$/, ""));
      reasons.set(why, [...reasons.get(why) ?? [], b.method]);
    }
    const refused = d.bounds.length - apply.length;
    $("refused").hidden = refused === 0;
    $("refused-summary").textContent = `${refused} more ${refused === 1 ? "bound does" : "bounds do"} not apply here, and why`;
    $("refusals").replaceChildren(...[...reasons].flatMap(([why, methods]) => [make("dt", {}, why), make("dd", {}, methods.join(", "))]));
  }

  // ---- the curve

  // spread lists rounds from one to last, evenly in the logarithm, first the
  // ends and then ever finer.
  function spread(last, parts) {
    const out = [], add = i => {
      const r = Math.round(last ** (i / parts));
      if (!out.includes(r)) out.push(r);
    };
    add(0);
    for (let every = parts; every >= 1; every /= 2) for (let i = 0; i <= parts; i += every) add(i);
    return out;
  }

  async function drawCurve(q, first, signal) {
    const once = setting.participation === "once";
    const {n, k, rounds: here, messages = 1} = q.query;
    const last = once ? Math.max(1, Math.floor(n / k)) : Math.min(Math.floor(1e12 / messages), Math.max(1000, 10 * here));
    $("curve-note").textContent = once ? "Batches are disjoint: each client is in one of them, whatever the number of rounds. They end with the clients."
      : "All else as set. Points are computed, lines between them drawn.";
    const points = [];
    $("point-rows").replaceChildren();
    old(false, "curve");
    const add = (rounds, d) => {
      const basic = d.bounds.find(b => b.method === "basic" && b.eps !== null);
      points.push({rounds, upper: d.upper && exact(d.upper.eps), basic: basic && exact(basic.eps), method: d.upper?.method ?? "none",
        here: rounds === here ? d.upper && exact(d.upper.eps) : null});
      points.sort((a, b) => a.rounds - b.rounds);
      chart.set(points, 1, last);
    };
    add(here, first);
    for (const rounds of once ? [1, last] : spread(last, 16)) {
      if (rounds === here) continue;
      const {document} = await curve.ask({...q, query: {...q.query, rounds}}, "best", {signal, fresh: points.length === 1});
      if (signal.aborted) return;
      add(rounds, document);
    }
    $("basic-legend").hidden = !points.some(p => p.basic > 0);
    const ends = [points[0], points.at(-1)].map(p => `${p.upper === null ? "no bound" : digits(p.upper, true)} at ${write(p.rounds)} rounds`);
    $("curve").setAttribute("aria-label", `Best proved ε over rounds: ${ends.join(", ")}. The table below has every point.`);
    $("point-rows").replaceChildren(...points.map(p =>
      make("tr", {}, make("td", {}, write(p.rounds)), make("td", {}, p.upper === null ? "none" : digits(p.upper, true)), make("td", {}, p.method))));
  }

  // ---- buttons and links

  async function copy(button, text) {
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => button.textContent = label, 1500);
  }
  $("copy").addEventListener("click", () => copy($("copy"), $("command").textContent));
  $("share").addEventListener("click", () => copy($("share"), location.href.replace(/#.*/, "") + toHash(setting)));
  $("reset").addEventListener("click", () => adopt(defaults()));
  $("controls").addEventListener("submit", e => e.preventDefault());
  // The address may have been rewritten since; the event knows.
  addEventListener("hashchange", e => fromLink(new URL(e.newURL).hash));
  function fromLink(hash) {
    const {setting: s, wrong: bad} = fromHash(hash);
    adopt(s);
    if (bad.length) {
      $("link-problem").textContent = "The link has parts that make no sense, left at their usual values: " + bad.join("; ") + ".";
      $("link-problem").hidden = false;
    }
  }

  build();
  fromLink(location.hash);
  for (const desk of [answers, curve]) desk.open().catch(() => {}); // a question will say so
})();
