// The page of riffle demo --browser.
import {join, newCredential, publicLine} from "./client/index.js";
import {featuresOf, gradient, guess, parameters} from "./features.js";

const $ = id => document.getElementById(id);
const side = 28;
const say = text => { $("state").textContent = text; };
const note = text => {
  const li = document.createElement("li");
  li.textContent = text;
  $("log").append(li);
  $("log").scrollTop = $("log").scrollHeight;
};

// The digits are this page's, and stay in its own storage.
const drawings = (JSON.parse(localStorage.getItem("drawings") ?? "[]")).map(({label, pixels}) => ({label, pixels: Uint8Array.from(pixels)}));
const keep = () => localStorage.setItem("drawings", JSON.stringify(drawings.map(({label, pixels}) => ({label, pixels: [...pixels]}))));

const pad = $("pad"), pen = pad.getContext("2d", {willReadFrequently: true});
let label = -1, inked = false, running = false, enrolled = false;

function wipe() {
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, pad.width, pad.height);
  inked = false;
  update();
}

function update() {
  $("add").disabled = !inked || label < 0;
  $("join").disabled = running || drawings.length === 0;
  if (!running && drawings.length > 0 && !enrolled) say("");
}

// pixels returns what is drawn as 28 × 28 levels.
function pixels() {
  const all = pen.getImageData(0, 0, pad.width, pad.height).data, step = pad.width / side, out = new Uint8Array(side * side);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      let sum = 0;
      for (let v = 0; v < step; v++) for (let u = 0; u < step; u++) sum += all[4 * ((y * step + v) * pad.width + x * step + u)];
      out[y * side + x] = Math.round(sum / (step * step));
    }
  }
  return out;
}

function show({label, pixels}) {
  const li = document.createElement("li"), c = document.createElement("canvas");
  c.width = c.height = side;
  const image = new ImageData(side, side);
  pixels.forEach((v, i) => image.data.set([v, v, v, 255], 4 * i));
  c.getContext("2d").putImageData(image, 0, 0);
  c.setAttribute("role", "img");
  c.setAttribute("aria-label", `a drawing of ${label}`);
  li.append(c, String(label));
  $("drawings").append(li);
}

let last;
const point = e => {
  const box = pad.getBoundingClientRect();
  return [(e.clientX - box.left) * pad.width / box.width, (e.clientY - box.top) * pad.height / box.height];
};
pad.addEventListener("pointerdown", e => { last = point(e); pad.setPointerCapture(e.pointerId); });
pad.addEventListener("pointermove", e => {
  if (!last || !e.buttons) return;
  const next = point(e);
  Object.assign(pen, {strokeStyle: "#fff", lineWidth: 22, lineCap: "round", lineJoin: "round"});
  pen.beginPath();
  pen.moveTo(...last);
  pen.lineTo(...next);
  pen.stroke();
  last = next;
  inked = true;
  update();
});
pad.addEventListener("pointerup", () => { last = undefined; });

for (let i = 0; i < 10; i++) {
  const l = document.createElement("label"), input = Object.assign(document.createElement("input"), {type: "radio", name: "label", value: i});
  input.addEventListener("change", () => { label = i; update(); });
  l.append(input, String(i));
  $("labels").append(l);
}
$("clear").addEventListener("click", wipe);
$("add").addEventListener("click", () => {
  const one = {label, pixels: pixels()};
  drawings.push(one);
  keep();
  show(one);
  wipe();
});

const wait = ms => new Promise(done => setTimeout(done, ms));
const demo = async () => (await fetch("demo.json", {cache: "no-store"})).json();
const tell = (path, body) => fetch(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body ?? {})});

// unknown returns the services whose certificates this browser does not take.
async function unknown(services) {
  const all = await Promise.all(services.map(async url => {
    try {
      await fetch(url, {credentials: "omit", cache: "no-store"});
      return "";
    } catch {
      return url;
    }
  }));
  return all.filter(url => url);
}

// known waits until the browser takes all certificates.
async function known(services) {
  for (;;) {
    const left = await unknown(services);
    $("certificates").hidden = left.length === 0;
    if (left.length === 0) return;
    say("Your browser does not know the demo's certificates: see above.");
    $("services").replaceChildren(...left.map(url => {
      const li = document.createElement("li"), a = Object.assign(document.createElement("a"), {href: new URL(url).origin + "/", target: "_blank", rel: "noopener", textContent: new URL(url).origin});
      li.append(a);
      return li;
    }));
    $("certificates").scrollIntoView();
    await new Promise(done => $("again").addEventListener("click", done, {once: true}));
  }
}

const theta0 = {round: 0};
const events = {
  round: e => note(`round ${e.round} is open`),
  sent: e => {
    note(`round ${e.round}: the shuffler has the report`);
    $("sent").textContent = Number($("sent").textContent) + 1;
  },
  spent: e => { $("spent").textContent = e.messages === 0 ? "0" : `${(Math.ceil(e.epsilon * 1000) / 1000).toFixed(3)} (δ = ${e.delta})`; },
  declined: e => note(`refused${e.round ? ` round ${e.round}` : ""}: ${e.reason}: ${e.message}`),
  retrying: e => note(`again${e.round ? `, round ${e.round}` : ""}: ${e.message}`),
  lost: e => note(`round ${e.round}: charged, but not taken: ${e.message}`),
  "not-drawn": e => note(`round ${e.round}: not drawn`),
  passed: e => note(`round ${e.round}: the coin said no`),
};

async function takePart() {
  running = true;
  update();
  try {
    let d = await demo();
    await known(d.services);
    let line = await publicLine();
    if (!line) {
      say("Making a key…");
      line = await newCredential();
    }
    const enrolment = await tell("enrol", {line});
    if (!enrolment.ok) throw new Error(await enrolment.text());
    enrolled = true;
    while (!d.task) {
      say(`Enrolled. Waiting for ${d.waiting} more ${d.waiting === 1 ? "tab" : "tabs"} and for the task…`);
      await wait(300);
      d = await demo();
    }
    say("Taking part…");
    const client = await join({...d.join, tasks: [d.task], gradient: ({round, theta}) => {
      theta0.round = round;
      if (theta.length !== parameters) throw new Error("another model");
      $("guess").textContent = `${guess(theta, drawings.at(-1).pixels)} (you said ${drawings.at(-1).label})`;
      return gradient(theta, drawings);
    }, onEvent: e => {
      if (e.type === "agreed") tell("ready", {line}).catch(() => {});
      events[e.type]?.(e);
    }});
    await client.done;
    say("The demo has ended. Its result is in the terminal.");
  } catch (e) {
    say(e.message);
    note(e.message);
  }
  running = false;
  tell("ended").catch(() => {});
  $("join").disabled = true;
}
$("join").addEventListener("click", takePart);

drawings.forEach(show);
wipe();
demo().then(async d => {
  $("others").textContent = `${d.clients}`;
  if (drawings.length > 0 && d.task && await publicLine()) takePart(); // this tab was closed
}).catch(() => say("The demo does not answer: has it ended?"));

export {featuresOf, gradient};
