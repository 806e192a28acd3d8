// The Worker in which the client runs. index.js starts it and speaks with it.
import "./wasm_exec.js";
import {Store} from "./store.js";

const ready = load();
ready.catch(() => {}); // told to each call

async function load() {
  const response = await fetch(new URL("./client.wasm.gz", import.meta.url));
  if (!response.ok) throw new Error(`client.wasm.gz: status ${response.status}`);
  let program = await response.arrayBuffer();
  const [a, b] = new Uint8Array(program, 0, 2);
  if (a === 0x1f && b === 0x8b) { // the server did not unpack it
    program = await new Response(new Blob([program]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  }
  const go = new globalThis.Go();
  const {instance} = await WebAssembly.instantiate(program, go.importObject);
  go.run(instance).then(() => postMessage({ended: true}), () => postMessage({ended: true}));
  return globalThis.riffle;
}

const plain = e => ({message: e?.message ?? String(e), reason: e?.reason});

const asked = new Map(); // gradients that the page is computing
let asks = 0;

function gradient(task, round, theta, dim) {
  return new Promise((resolve, reject) => {
    asked.set(++asks, {resolve, reject});
    postMessage({ask: asks, task, round, theta, dim}, [theta.buffer]);
  });
}

let running;

const calls = {
  newCredential: async name => (await ready).newCredential(new Store(name)),
  publicLine: async name => (await ready).publicLine(new Store(name)),
  async join(name, options, asks) {
    const client = await ready;
    running = await client.join(options, new Store(name), event => postMessage({event}), asks ? gradient : null);
    running.done.then(() => postMessage({done: true}), e => postMessage({done: true, error: plain(e)}));
  },
  stop: async () => running?.stop(),
};

onmessage = async ({data}) => {
  if (data.ask) {
    const waiting = asked.get(data.ask);
    asked.delete(data.ask);
    if (data.error) waiting?.reject(new Error(data.error)); else waiting?.resolve(data.row);
    return;
  }
  const {id, call, args} = data;
  try {
    postMessage({id, value: await calls[call](...args)});
  } catch (e) {
    postMessage({id, error: plain(e)});
  }
};
