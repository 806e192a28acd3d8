"use strict";
// Runs the accountant; see page/plan/wasm/main.go for what riffleAnswer takes.
if (typeof Go === "undefined") importScripts("wasm_exec.js");

let instance;

onmessage = async ({data}) => {
  if (data.module) {
    const go = new Go();
    instance = await WebAssembly.instantiate(data.module, go.importObject);
    go.run(instance);
    postMessage({ready: true});
    return;
  }
  const {id, question, which, fresh} = data;
  const start = performance.now();
  const step = (method, done, of) => postMessage({id, step: {method, done, of}});
  let text;
  try {
    text = riffleAnswer(JSON.stringify({...question, which}), fresh, step);
  } catch (e) {
    console.error(e);
  }
  // Without an answer the program has ended; it cannot be asked again.
  postMessage(typeof text === "string" ? {id, text, ms: performance.now() - start, bytes: instance.exports.mem.buffer.byteLength} : {id, dead: true});
};
