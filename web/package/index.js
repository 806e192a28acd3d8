// @riffle-dp/client: see index.d.ts and README.md.

const failed = ({message, reason}) => Object.assign(new Error(message), reason === undefined ? {} : {reason});

// start begins a Worker. call(name, ...args) asks it; on is called with its other messages.
function start(on) {
  const worker = new Worker(new URL("./worker.js", import.meta.url), {type: "module", name: "riffle"});
  const waiting = new Map();
  let id = 0, dead;
  const die = error => {
    if (dead) return;
    dead = error;
    worker.terminate();
    for (const {reject} of waiting.values()) reject(error);
    waiting.clear();
    on({done: true, error});
  };
  worker.onmessage = ({data}) => {
    if (data.ended) return die(new Error("the client has ended unexpectedly"));
    if (!data.id) return on(data, (message, transfer) => worker.postMessage(message, transfer ?? []));
    const {resolve, reject} = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error) reject(failed(data.error)); else resolve(data.value);
  };
  worker.onerror = e => die(new Error(`the client's Worker cannot run: ${e.message ?? "not loaded"}`));
  const call = (name, ...args) => new Promise((resolve, reject) => {
    if (dead) return reject(dead);
    waiting.set(++id, {resolve, reject});
    worker.postMessage({id, call: name, args});
  });
  return {call, end: () => worker.terminate()};
}

async function once(name, storage) {
  const {call, end} = start(() => {});
  try {
    return await call(name, storage ?? "client");
  } finally {
    end();
  }
}

// JSON has no NaN and no infinity: it would write null, which says that an option is not given.
const whole = (key, v) => {
  if (typeof v === "number" && !Number.isFinite(v)) throw new Error(`client: options: ${key} is no finite number`);
  return v;
};

export const newCredential = ({storage} = {}) => once("newCredential", storage);

export const publicLine = ({storage} = {}) => once("publicLine", storage);

export async function join({storage = "client", gradient, data, onEvent, signal, credential, coordinator, ...rest}) {
  signal?.throwIfAborted();
  const given = typeof credential === "string" ? {credential} : {credential: credential?.secret, new: credential?.new};
  const finite = list => Array.from(list ?? [], v => {
    if (!Number.isFinite(v)) throw new Error("client: options: data: an input or a target is no finite number");
    return v;
  });
  const examples = data && {...data, inputs: finite(data.inputs), targets: finite(data.targets)};
  const options = {...rest, ...given, data: examples, coordinator: [coordinator ?? []].flat()};
  let ended;
  const done = new Promise((resolve, reject) => { ended = error => error ? reject(error) : resolve(); });
  done.catch(() => {}); // a page that does not wait for the end has events
  const worker = start(async (message, reply) => {
    if (message.done) {
      worker.end();
      ended(message.error && (message.error instanceof Error ? message.error : failed(message.error)));
    } else if (message.event) {
      onEvent?.(JSON.parse(message.event));
    } else if (message.ask) {
      const {ask, task, round, theta, dim} = message;
      try {
        reply({ask, row: Float32Array.from(await gradient({task, round, theta, dim}))});
      } catch (e) {
        reply({ask, error: e?.message ?? String(e)});
      }
    }
  });
  try {
    await worker.call("join", storage, JSON.stringify(options, whole), typeof gradient === "function");
  } catch (e) {
    worker.end();
    throw e;
  }
  const stop = () => {
    worker.call("stop").catch(() => {}); // it may have ended by itself; nothing answers then
    return done;
  };
  signal?.addEventListener("abort", () => { stop().catch(() => {}); }, {once: true});
  if (signal?.aborted) stop().catch(() => {}); // while it was starting
  return {done, stop};
}
