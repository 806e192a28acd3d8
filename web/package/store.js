// The files of a client, in IndexedDB: what client.Store in Go asks for. A file is a row of pieces, so
// that a ledger grows without being written again. Every change is one transaction with strict
// durability: it has happened, whole, when its promise is fulfilled, or not at all.

const lockWait = 3000; // ms; the tab of before a reload needs a moment to end

const named = (name, message) => Object.assign(new Error(message), {name});

const answer = request => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

// Keys of a file's pieces are [name, 0], [name, 1], …
const pieces = name => IDBKeyRange.bound([name], [name, []]);
const mostPieces = 256;

const joined = parts => {
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return all;
};

export class Store {
  #opening;

  constructor(name) {
    this.name = name;
  }

  #open() {
    // A database that was closed from outside was cleared. It is never opened again here: it would be
    // another one.
    return this.#opening ??= new Promise((resolve, reject) => {
      const request = indexedDB.open("riffle:" + this.name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("pieces");
      request.onerror = () => reject(request.error);
      request.onblocked = () => reject(named("Error", "the store is being cleared"));
      request.onsuccess = () => {
        const db = request.result;
        db.onversionchange = () => db.close();
        resolve(db);
      };
    });
  }

  async #transact(mode, work) {
    const t = (await this.#open()).transaction("pieces", mode, {durability: "strict"});
    const ended = new Promise((resolve, reject) => {
      t.oncomplete = resolve;
      t.onabort = () => reject(t.error === null ? named("AbortError", "the store gave up a change")
        : named(t.error.name, t.error.message || (t.error.name === "QuotaExceededError" ? "the browser's storage is full" : t.error.name)));
    });
    ended.catch(() => {});
    let result;
    try {
      result = await work(t.objectStore("pieces"));
    } catch (e) {
      try { t.abort(); } catch { /* it has ended already */ }
      throw e;
    }
    await ended;
    return result;
  }

  async #all(s, name) {
    const parts = await answer(s.getAll(pieces(name)));
    if (parts.length === 0) throw named("NotFoundError", `${name} is not there`);
    return joined(parts);
  }

  #replace(s, name, content) {
    s.delete(pieces(name));
    return answer(s.put(content, [name, 0]));
  }

  // lock takes the store for this tab. It returns the function that gives it back; the end of the tab
  // does as well.
  lock() {
    return new Promise((resolve, reject) => {
      navigator.locks.request("riffle:" + this.name, {signal: AbortSignal.timeout(lockWait)},
        () => new Promise(release => resolve(release)),
      ).catch(e => reject(e.name === "TimeoutError" || e.name === "AbortError"
        ? named("LockedError", "another tab or window has this client already") : e));
    });
  }

  // create makes two files, and neither if one of them is there.
  create(name, content, name2, content2) {
    return this.#transact("readwrite", async s => {
      if (await answer(s.count(pieces(name))) + await answer(s.count(pieces(name2))) > 0) throw named("Error", "the store has a client already");
      s.put(content, [name, 0]);
      await answer(s.put(content2, [name2, 0]));
    });
  }

  list(directory) {
    return this.#transact("readonly", async s => {
      const keys = await answer(s.getAllKeys(IDBKeyRange.bound([directory + "/"], [directory + "0"], false, true)));
      return [...new Set(keys.map(([name]) => name.slice(directory.length + 1)))];
    });
  }

  read(name) {
    return this.#transact("readonly", s => this.#all(s, name));
  }

  write(name, content) {
    return this.#transact("readwrite", s => this.#replace(s, name, content));
  }

  // append refuses a file that is not there: something has removed it.
  append(name, more) {
    return this.#transact("readwrite", async s => {
      const last = await answer(s.openKeyCursor(pieces(name), "prev"));
      if (!last) throw named("NotFoundError", `${name} is not there`);
      const next = last.key[1] + 1;
      if (next < mostPieces) return answer(s.put(more, [name, next]));
      return this.#replace(s, name, joined([await this.#all(s, name), more]));
    });
  }

  cut(name, size) {
    return this.#transact("readwrite", async s => this.#replace(s, name, (await this.#all(s, name)).slice(0, size)));
  }

  zero(name, from, to) {
    return this.#transact("readwrite", async s => this.#replace(s, name, (await this.#all(s, name)).fill(0, from, to)));
  }

  remove(name) {
    return this.#transact("readwrite", async s => {
      if (await answer(s.count(pieces(name))) === 0) throw named("NotFoundError", `${name} is not there`);
      await answer(s.delete(pieces(name)));
    });
  }
}
