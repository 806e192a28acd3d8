"use strict";
// The accountant in web workers, so that the page never waits for it: worker.js computes, or asks the server that the
// page is from.
const riffleAccountant = (() => {
  const patience = 60; // ms that a question nobody waits for may go on
  const memory = 4e8;  // bytes; an accountant's memory never shrinks, so it is let go

  let compiled;
  const load = () => riffleServed ? undefined : compiled ??= compile();

  async function compile() {
    let bytes;
    if (window.riffleOffline) {
      bytes = Uint8Array.from(atob(riffleOffline.accountant), c => c.charCodeAt(0));
    } else {
      const r = await fetch("accountant.wasm.gz");
      if (!r.ok) throw new Error(`accountant.wasm.gz: ${r.status} ${r.statusText}`);
      bytes = new Uint8Array(await r.arrayBuffer());
    }
    // Some servers say that the file is gzip, and the browser unpacks it.
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) {
      const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      bytes = await new Response(plain).arrayBuffer();
    }
    return WebAssembly.compile(bytes);
  }

  // A page opened as a file may neither fetch nor start a worker from a file.
  const offline = () => new Promise((resolve, reject) => {
    const s = document.createElement("script");
    s.src = "offline.js";
    s.onload = resolve;
    s.onerror = () => reject(new Error("opened as a file, the page needs offline.js beside it, which riffle figures --site writes"));
    document.head.append(s);
  });

  async function start() {
    if (location.protocol === "file:" && !window.riffleOffline) await offline();
    const url = window.riffleOffline ? URL.createObjectURL(new Blob([riffleOffline.worker], {type: "text/javascript"})) : "worker.js";
    const worker = new Worker(url);
    try {
      const module = await load();
      await new Promise((resolve, reject) => {
        worker.onmessage = resolve;
        worker.onerror = e => reject(new Error(e.message || "worker.js does not load"));
        worker.postMessage({module});
      });
    } catch (e) {
      worker.terminate();
      throw e;
    }
    return worker;
  }

  // One accountant is kept warm to take the place of one that is stopped.
  let spare;
  function take() {
    const taken = spare ?? start();
    spare = undefined;
    taken.then(() => setTimeout(() => {
      if (!spare) (spare = start()).catch(() => spare = undefined);
    }, 1500), () => {});
    return taken;
  }

  const withdrawn = () => new DOMException("no longer asked", "AbortError");

  // Desk asks one accountant, one question at a time.
  class Desk {
    #worker; // a promise
    #busy;   // the question being answered
    #id = 0;

    // open makes the desk ready for its first question.
    open() { return this.#worker ??= take(); }

    #replace() {
      const old = this.#worker;
      this.#worker = this.#busy = undefined;
      old?.then(w => w.terminate(), () => {});
    }

    // ask takes a question of settings.js and resolves to {document, ms}. Once signal is aborted it rejects; the
    // accountant is then stopped unless it is done with the question soon.
    async ask(question, which, {signal, fresh = false, step}) {
      while (this.#busy) {
        const busy = this.#busy;
        await Promise.race([busy.over, new Promise(r => setTimeout(r, patience))]);
        if (signal.aborted) throw withdrawn();
        if (this.#busy === busy) this.#replace();
      }
      if (signal.aborted) throw withdrawn();
      const id = ++this.#id, job = {};
      job.over = new Promise(r => job.end = r);
      this.#busy = job;
      const leave = () => {
        if (this.#busy === job) this.#busy = undefined;
        job.end();
      };
      let worker;
      try {
        worker = await this.open();
      } catch (e) {
        if (this.#busy === job) this.#worker = undefined;
        leave();
        throw e;
      }
      if (signal.aborted || this.#busy !== job) {
        leave();
        throw withdrawn();
      }
      return new Promise((resolve, reject) => {
        signal.addEventListener("abort", () => reject(withdrawn()));
        const fail = why => {
          if (this.#busy === job) this.#replace();
          leave();
          reject(new Error(why));
        };
        worker.onerror = e => fail(e.message || "the accountant failed");
        worker.onmessage = ({data}) => {
          if (data.id !== id) return;
          if (data.step) {
            if (!signal.aborted) step?.(data.step);
            return;
          }
          if (data.dead) return fail("the accountant failed on this setting; the browser's console has details");
          if (data.bytes > memory && this.#busy === job) this.#replace();
          leave();
          const document = JSON.parse(data.text);
          if (document.error !== undefined) reject(new Error(document.error));
          else resolve({document, ms: data.ms});
        };
        worker.postMessage({id, question, which, fresh});
      });
    }
  }

  return {Desk};
})();
