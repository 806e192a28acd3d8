"use strict";
// What can be set, how it is written, its place in the link, and the command
// line that asks the same.
const riffleSettings = (() => {
  const most = 2 ** 52;
  // low to high is what the slider reaches; the box takes what check takes.
  const number = (symbol, label, low, high, start, more) =>
    ({symbol, label, low, high, start, perDecade: 20, least: 0, most: Infinity, whole: false, ...more});
  const count = (symbol, label, low, high, start, more) =>
    number(symbol, label, low, high, start, {whole: true, least: 1, most, ...more});
  // A list of numbers, which may be empty, has a box and no slider; a choice has its values.
  const list = (symbol, label, example, more) => ({symbol, label, example, start: [], ...more});
  const choice = (label, choices, start, more) => ({label, choices, start, ...more});

  // In the order of the page. Where zero is set, the left end of the slider is 0 and means none: the link and the
  // command then leave the field out. Such fields come last, where they fold away.
  const fields = {
    symbols: count("K", "answers to choose from", 2, 1000, 10, {least: 2, most: 2 ** 30}),
    eps0: number("ε₀", "local privacy of a report", .05, 10, 2, {every: .05, most: 50, flag: "eps0",
      hint: "What one report alone may give away, before the shuffle."}),
    sigma: number("σ", "noise of a report", .1, 100, 1, {flag: "sigma", hint: "Standard deviation in units of the clip norm; only the sum is seen."}),
    sumSigma: number("σ", "noise of the sum", 1, 1e4, 100, {flag: "sigma", hint: "Standard deviation of each aggregator’s noise, in units of the clip norm. What is released has √2 times as much."}),
    dim: count("d", "coordinates of a vector", 1, 1e6, 100, {flag: "dim", most: 2 ** 24}),
    steps: count("J", "steps of the density", 1, 16, 3, {most: 16, flag: "steps", perDecade: 100}),
    edges: list("z", "scores at which it rises", "0.95, 1.49, 2.02", {flag: "edges"}),
    encoding: choice("What a report holds", {
      values: ["Rounded values", "18 bits for each coordinate."],
      seed: ["A seed", "16 bytes for any d; the reader expands them."],
    }, "values", {flag: "encoding"}),
    grid: count("g", "grid steps in a coordinate’s range", 2, 1e5, 314, {flag: "grid", most: 2 ** 24}),
    bits: count("b", "noise bits per client and coordinate", 1, 1e7, 735, {flag: "noise-bits", most: 2 ** 40, hint: "Fair coins that each client adds to each coordinate."}),
    n: count("n", "clients", 100, 1e9, 1e6, {flag: "n"}),
    k: count("k", "reports a round", 1, 1e7, 1000, {flag: "k"}),
    gamma: number("γ", "chance to take part in a round", 1e-6, 1, .01, {most: 1, flag: "gamma"}),
    rounds: count("T", "rounds", 1, 1e6, 1e5, {most: 1e12, flag: "rounds"}),
    messages: count("m", "messages of a client in a round", 1, 64, 1, {most: 4096, flag: "messages",
      hint: "Each has ε₀. Above one, nothing is gained from chance in who takes part."}),
    delta: number("δ", "failure probability", 1e-12, 1e-2, 1e-8, {below: 1, flag: "delta",
      hint: "Keep it far below 1/n."}),
    tv: number("a", "known total variation", 1e-6, .5, 0, {zero: true, least: -1, most: .5, flag: "tv",
      hint: "The reports of any two inputs differ by at most a(e^ε₀ − 1) in total variation. 0: not known."}),
    dropout: number("p", "share of reports that get lost", 0, .95, 0, {zero: true, every: .05, least: -1, below: 1, flag: "dropout",
      hint: "The chance that a report never arrives, whatever the client’s data."}),
    colluders: count("c", "clients that collude", 1, 1e8, 0, {zero: true, least: 0, flag: "colluders",
      hint: "So many of the n tell the observer all they know. The others are protected."}),
  };

  const participations = {
    all: ["Everyone, every round", "All n clients report in every round."],
    sampled: ["k of n, drawn each round", "A random k of the n clients report; who was drawn stays hidden."],
    "check-in": ["Each by its own coin", "A client takes part with chance γ and tells nobody when it does not."],
    once: ["Disjoint batches, each client once", "Every round has k fresh clients; nobody reports twice."],
  };
  // Classes of reports that the accountant knows, and randomizers: classes.js.
  const randomizers = Object.fromEntries(riffleClasses.map(c => [c.class, [c.label, c.hint, c.settings]]));
  const named = Object.fromEntries(riffleClasses.map(c => [c.class, c.named]));

  const byAggregators = "vecsum-by-aggregators";
  // single says whether single reports are seen or summed, and not vectors with noise of their sum.
  const single = s => s.randomizer !== "vecsum" && s.randomizer !== byAggregators;

  // shown lists a setting's fields. As many steps as edges are meant where edges are given.
  function shown(s) {
    const own = randomizers[s.randomizer][2].filter(name => name !== "steps" || s.edges.length === 0);
    const out = [...own, "n"];
    if (s.participation === "sampled" || s.participation === "once") out.push("k");
    if (s.participation === "check-in") out.push("gamma");
    out.push("rounds");
    if (own.includes("eps0")) out.push("messages");
    out.push("delta");
    if (s.randomizer === "generic") out.push("tv");
    return single(s) ? [...out, "dropout", "colluders"] : out;
  }
  // said lists the fields that a link or a command names.
  const said = s => shown(s).filter(name => !(fields[name].zero && s[name] === 0));

  function defaults() {
    const s = {participation: "sampled", randomizer: "generic"};
    for (const [name, f] of Object.entries(fields)) s[name] = f.start;
    return s;
  }

  // write gives the shortest text that reads as the same value.
  function write(x) {
    if (typeof x === "string") return x;
    if (Array.isArray(x)) return x.map(write).join(",");
    const plain = String(x).replace("e+", "e");
    const power = x.toExponential().replace("e+", "e");
    return (x >= 1e4 || x < 1e-3) && power.length < plain.length ? power : plain;
  }

  const decimal = bare => /^[+]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(bare) ? Number(bare) : NaN;
  // read returns a field's value, or throws what is wrong with the text.
  function read(name, text) {
    const f = fields[name];
    if (f.choices) {
      if (!Object.hasOwn(f.choices, text)) throw new Error(`Give ${Object.keys(f.choices).join(" or ")}.`);
      return text;
    }
    if (f.example) {
      const all = text.split(/[\s,;]+/).filter(part => part !== "").map(decimal);
      if (all.some(Number.isNaN)) throw new Error(`Give numbers, such as ${f.example}, or nothing.`);
      return all;
    }
    const x = decimal(text.replace(/[\s_\u2009\u202f]/g, ""));
    if (Number.isNaN(x)) throw new Error("Give a number, such as " + write(f.start) + ".");
    if (f.whole && !Number.isInteger(x)) throw new Error("Give a whole number.");
    if (f.whole && x < f.least) throw new Error(`Give at least ${f.least}.`);
    if (!f.whole && x <= f.least) throw new Error(`Give more than ${f.least}.`);
    if (x > f.most) throw new Error(`Give at most ${write(f.most)}.`);
    if (x >= f.below) throw new Error(`Give less than ${f.below}.`);
    return x;
  }

  // A slider has whole positions, evenly spaced in the logarithm unless the
  // field says how far apart.
  const positions = f => Math.round(f.every ? (f.high - f.low) / f.every : Math.log10(f.high / f.low) * f.perDecade);
  function position(name, x) {
    const f = fields[name], last = positions(f);
    const p = f.every ? (x - f.low) / f.every : Math.log10(x / f.low) / Math.log10(f.high / f.low) * last;
    return Math.min(Math.max(Math.round(p), 0), last);
  }
  function atPosition(name, p) {
    const f = fields[name], last = positions(f);
    if (p <= 0) return f.zero ? 0 : f.low;
    if (p >= last) return f.high;
    if (f.every) return Number((f.low + p * f.every).toPrecision(6));
    const x = f.low * (f.high / f.low) ** (p / last);
    return Number(f.whole && x < 10 ? x.toFixed(0) : x.toPrecision(2));
  }
  // step is the next number up or down, by, of those that the slider has.
  function step(name, x, by) {
    const f = fields[name], p = position(name, x), last = positions(f);
    for (let q = p + by; q >= 0 && q <= last; q += by) {
      const y = atPosition(name, q);
      if (by > 0 ? y > x : y < x) return y;
    }
    return x;
  }

  function toHash(s) {
    const out = [`participation=${s.participation}`, `randomizer=${s.randomizer}`];
    for (const name of said(s)) if (write(s[name]) !== "") out.push(`${name}=${write(s[name])}`);
    return "#" + out.join("&");
  }

  // fromHash returns the setting of a link and what of it makes no sense.
  function fromHash(hash) {
    const s = defaults(), wrong = [];
    for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
      const choice = {participation: participations, randomizer: randomizers}[name];
      if (choice) {
        if (Object.hasOwn(choice, text)) s[name] = text;
        else wrong.push(`${name} “${text}” is not known`);
      } else if (!Object.hasOwn(fields, name)) {
        wrong.push(`“${name}” is not known`);
      } else {
        try {
          s[name] = read(name, text);
        } catch (e) {
          wrong.push(`${name} “${text}”: ${e.message.toLowerCase().replace(/\.$/, "")}`);
        }
      }
    }
    return {setting: s, wrong};
  }

  // question is what the accountant is asked: the query of a document of riffle eps --json, and
  // the randomizer that its reports come from, if it has a name.
  function question(s) {
    const on = said(s), own = randomizers[s.randomizer][2];
    const query = {participation: s.participation, n: s.n, rounds: s.rounds, delta: s.delta};
    const put = (into, ...names) => { for (const name of names) if (on.includes(name)) into[name] = s[name]; };
    put(query, "k", "gamma", "tv", "dropout", "colluders");
    if (on.includes("messages") && s.messages > 1) query.messages = s.messages;
    if (named[s.randomizer]) {
      const report = {name: s.randomizer};
      put(report, ...own);
      return {query, report};
    }
    query.randomizer = s.randomizer;
    if (s.randomizer === byAggregators) Object.assign(query, {randomizer: "vecsum", trust: "vector-sum", noise_by: "aggregators", sigma: s.sumSigma});
    put(query, "eps0", "sigma", "symbols", "dim", "grid");
    if (s.randomizer === "gaussian") query.trust = "distributed";
    if (s.randomizer === "vecsum") Object.assign(query, {trust: "vector-sum", noise: "binomial", noise_bits: s.bits});
    return {query};
  }

  function command(s) {
    const words = ["riffle eps"];
    if (s.randomizer === "gaussian") words.push("--trust distributed");
    if (s.randomizer === byAggregators) words.push("--randomizer vecsum --noise-by aggregators");
    else if (s.randomizer !== "generic") words.push("--randomizer " + (s.randomizer === "krr" ? "krr:" + s.symbols : s.randomizer));
    words.push("--participation " + s.participation);
    for (const name of said(s)) {
      const {flag} = fields[name], text = write(s[name]);
      if (flag && text !== "" && !(name === "messages" && s.messages === 1)) words.push(`--${flag} ${text}`);
    }
    return words;
  }

  return {fields, participations, randomizers, single, shown, defaults, write, read, positions, position, atPosition, step, toHash, fromHash, question, command};
})();
