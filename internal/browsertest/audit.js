(function () {
  "use strict";
  var wrong = [];
  function shown(e) {
    if (!e.getClientRects().length) return false;
    var s = getComputedStyle(e);
    return s.visibility !== "hidden" && s.display !== "none";
  }
  function hiddenAway(e) { // for screen readers only
    for (; e; e = e.parentElement) {
      var s = getComputedStyle(e), r = e.getBoundingClientRect();
      if (s.clipPath.indexOf("inset(50%") >= 0 || r.right < 0) return true;
    }
    return false;
  }
  function label(e) {
    var id = e.id ? " #" + e.id : "";
    return e.tagName.toLowerCase() + id + " “" + (e.textContent || "").trim().slice(0, 40) + "”";
  }
  function name(e) {
    var by = e.getAttribute("aria-labelledby");
    if (by) return by.split(" ").map(function (id) { var x = document.getElementById(id); return x ? x.textContent : ""; }).join(" ");
    if (e.getAttribute("aria-label")) return e.getAttribute("aria-label");
    if (e.labels && e.labels.length) return Array.prototype.map.call(e.labels, function (l) { return l.textContent; }).join(" ");
    if (/^(input|select|textarea)$/i.test(e.tagName)) return e.title || "";
    return e.textContent || e.title || "";
  }
  if (!document.documentElement.lang) wrong.push("no lang");
  if (!document.title.trim()) wrong.push("no title");
  if (!document.querySelector("meta[name=viewport]")) wrong.push("no viewport");
  if (!document.querySelector("main")) wrong.push("no main");
  var ids = {};
  document.querySelectorAll("[id]").forEach(function (e) {
    if (ids[e.id]) wrong.push("id twice: " + e.id);
    ids[e.id] = true;
  });

  var last = 0, ones = 0;
  document.querySelectorAll("h1,h2,h3,h4,h5,h6").forEach(function (e) {
    if (!shown(e)) return;
    var level = +e.tagName[1];
    if (level === 1) ones++;
    if (level > last + 1) wrong.push("heading level " + level + " after " + last + ": " + label(e));
    if (!e.textContent.trim()) wrong.push("empty heading " + e.tagName);
    last = level;
  });
  if (ones !== 1) wrong.push(ones + " h1");

  document.querySelectorAll("a[href],button,input,select,textarea,summary,[tabindex]:not([tabindex='-1']),[role=progressbar],[role=meter],[role=img]").forEach(function (e) {
    if (!shown(e)) return;
    if (!name(e).trim()) wrong.push("no name: " + label(e) + " " + e.className);
    if (/^(a|button|select|input)$/i.test(e.tagName) && !hiddenAway(e)) {
      var r = e.getBoundingClientRect(), inline = getComputedStyle(e).display === "inline";
      if (!inline && (r.height < 24 || r.width < 24)) wrong.push("small target: " + label(e));
    }
  });
  document.querySelectorAll("img").forEach(function (e) { if (!e.hasAttribute("alt")) wrong.push("no alt: " + e.src); });
  document.querySelectorAll("table").forEach(function (e) { if (shown(e) && !e.querySelector("th[scope]")) wrong.push("a table without headers"); });
  document.querySelectorAll("[style*='outline: none'],[onclick],[onload]").forEach(function (e) { wrong.push("inline handler or outline: " + label(e)); });

  // Contrast, of every text as it is drawn.
  function rgba(text) {
    var probe = document.createElement("canvas");
    probe.width = probe.height = 1;
    var c = probe.getContext("2d");
    c.fillStyle = text;
    c.fillRect(0, 0, 1, 1);
    var d = c.getImageData(0, 0, 1, 1).data;
    return [d[0], d[1], d[2], d[3] / 255];
  }
  var known = {};
  function colour(text) { return known[text] || (known[text] = rgba(text)); }
  function over(top, under) {
    return [0, 1, 2].map(function (i) { return top[i] * top[3] + under[i] * (1 - top[3]); }).concat([1]);
  }
  function background(e) {
    var layers = [];
    for (; e; e = e.parentElement) {
      var c = colour(getComputedStyle(e).backgroundColor);
      if (c[3] > 0) layers.push(c);
      if (c[3] === 1) break;
    }
    var out = [255, 255, 255, 1];
    if (matchMedia("(prefers-color-scheme: dark)").matches) out = colour("Canvas");
    while (layers.length) out = over(layers.pop(), out);
    return out;
  }
  function luminance(c) {
    var v = [0, 1, 2].map(function (i) { var x = c[i] / 255; return x <= 0.04045 ? x / 12.92 : Math.pow((x + 0.055) / 1.055, 2.4); });
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2];
  }
  var walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), seen = 0;
  while (walker.nextNode()) {
    var e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || /^(SCRIPT|STYLE|NOSCRIPT|OPTION)$/.test(e.tagName) || !shown(e) || hiddenAway(e)) continue;
    seen++;
    var b = background(e), f = over(colour(getComputedStyle(e).color), b), x = luminance(f), y = luminance(b);
    var ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
    if (ratio < 4.5) wrong.push("contrast " + ratio.toFixed(2) + ": " + label(e));
  }
  if (seen < 5) wrong.push("hardly any text");

  if (document.documentElement.scrollWidth > innerWidth) {
    var widest = "";
    document.querySelectorAll("body *").forEach(function (e) { if (e.getBoundingClientRect().right > innerWidth + 1 && !widest && !hiddenAway(e)) widest = label(e) + " ." + e.className; });
    wrong.push("wider than the window: " + document.documentElement.scrollWidth + " > " + innerWidth + ", first " + widest);
  }
  return wrong;
})()
