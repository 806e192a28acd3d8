"use strict";
// Asks the server that the page is from, in the place of worker.js. It ends a question when it is ended itself.
onmessage = async ({data: {id, question, which}}) => {
  if (!id) return postMessage({ready: true});
  const start = performance.now();
  const answer = text => postMessage({id, text, ms: performance.now() - start, bytes: 0});
  const body = JSON.stringify({...question, which});
  try {
    let response;
    // Of a server that is busy the page asks again.
    while ((response = await fetch("ask", {method: "POST", headers: {"Content-Type": "application/json"}, body})).status === 503) {
      postMessage({id, step: {busy: true}});
      await new Promise(done => setTimeout(done, 1000 * (Number(response.headers.get("Retry-After")) || 1)));
    }
    if (!response.ok) throw new Error((await response.text()).trim() || `status ${response.status}`);
    // Lines: {"step": …} before each method, then the answer.
    const lines = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (let part; !(part = await lines.read()).done;) {
      text += part.value;
      for (let end; (end = text.indexOf("\n")) >= 0; text = text.slice(end + 1)) {
        const line = text.slice(0, end);
        if (!line.startsWith('{"step":')) return answer(line);
        postMessage({id, ...JSON.parse(line)});
      }
    }
    throw new Error("it ended before it had answered");
  } catch (e) {
    answer(JSON.stringify({error: `The server does not answer: ${e.message}`}));
  }
};
