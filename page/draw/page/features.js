// What the demo's model, hog-linear, learns of a drawing, and its gradient: as learn/feature and
// learn/model compute them, up to float32's rounding. draw_test.go compares both.

const side = 28, cells = 4, spacing = 5, orientations = 12, norm = 3, spread = 4.2;
export const features = cells * cells * orientations, classes = 10, parameters = (features + 1) * classes;

// upright shears, centres and scales the ink by its own moments. pixels are 28 × 28 levels from 0 to 255.
function upright(pixels) {
  let mass = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const m = pixels[y * side + x];
      mass += m; sx += m * x; sy += m * y; sxx += m * x * x; sxy += m * x * y; syy += m * y * y;
    }
  }
  const out = new Float32Array(side * side);
  if (mass === 0) return out;
  const cx = sx / mass, cy = sy / mass;
  let xx = sxx / mass - cx * cx;
  const xy = sxy / mass - cx * cy, yy = syy / mass - cy * cy;
  let a = 0;
  if (yy > 1e-6) {
    a = Math.max(-2, Math.min(2, xy / yy));
    xx += a * (a * yy - 2 * xy);
  }
  const k = Math.max(.5, Math.min(2, Math.sqrt(Math.max(0, xx)) / spread));
  const at = (x, y) => x < 0 || x >= side || y < 0 || y >= side ? 0 : pixels[y * side + x];
  for (let y = 0; y < side; y++) {
    const v = y - (side - 1) / 2, fromY = cy + v, y0 = Math.floor(fromY), fy = fromY - y0;
    for (let x = 0; x < side; x++) {
      const fromX = cx + a * v + k * (x - (side - 1) / 2), x0 = Math.floor(fromX), fx = fromX - x0;
      const top = (1 - fx) * at(x0, y0) + fx * at(x0 + 1, y0), bottom = (1 - fx) * at(x0, y0 + 1) + fx * at(x0 + 1, y0 + 1);
      out[y * side + x] = (1 - fy) * top + fy * bottom;
    }
  }
  return out;
}

// weights are the cells that a row or column belongs to.
const weights = Array.from({length: side}, (_, p) => {
  const start = (side - 1 - (cells - 1) * spacing) / 2, list = [];
  for (let j = 0; j < cells; j++) {
    const w = 1 - Math.abs(p - start - j * spacing) / spacing;
    if (w > 0) list.push([j, w]);
  }
  return list;
});

const lengthOf = v => Math.sqrt(v.reduce((s, x) => s + x * x, 0));

// featuresOf returns the histograms of gradients of a drawing.
export function featuresOf(pixels) {
  const img = upright(pixels), out = new Float32Array(features);
  const at = (x, y) => x < 0 || x >= side || y < 0 || y >= side ? 0 : img[y * side + x];
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const gx = at(x + 1, y) - at(x - 1, y), gy = at(x, y + 1) - at(x, y - 1);
      if (gx === 0 && gy === 0) continue;
      const size = Math.sqrt(gx * gx + gy * gy) / 510;
      let angle = Math.atan2(gy, gx);
      if (angle < 0) angle += 2 * Math.PI;
      const bin = angle * orientations / (2 * Math.PI), low = Math.floor(bin), share = bin - low;
      const first = low % orientations, next = (first + 1) % orientations;
      for (const [i, wi] of weights[y]) {
        for (const [j, wj] of weights[x]) {
          const cell = (i * cells + j) * orientations;
          out[cell + first] += size * (1 - share) * wi * wj;
          out[cell + next] += size * share * wi * wj;
        }
      }
    }
  }
  for (let i = 0; i < features; i++) out[i] = Math.sqrt(out[i]);
  const mean = out.reduce((s, x) => s + x, 0) / features;
  for (let i = 0; i < features; i++) out[i] -= mean;
  const length = lengthOf(out);
  if (length > 0) for (let i = 0; i < features; i++) out[i] *= norm / length;
  return out;
}

// scores returns the probabilities of the classes.
function probabilities(theta, x) {
  const p = Array.from({length: classes}, (_, c) => theta[features * classes + c]);
  for (let i = 0; i < features; i++) for (let c = 0; c < classes; c++) p[c] += x[i] * theta[i * classes + c];
  const most = Math.max(...p), e = p.map(s => Math.exp(s - most)), sum = e.reduce((a, b) => a + b, 0);
  return e.map(v => v / sum);
}

// guess returns the class that the model finds most likely.
export function guess(theta, pixels) {
  const p = probabilities(theta, featuresOf(pixels));
  return p.indexOf(Math.max(...p));
}

// gradient returns the mean of the gradients of the drawings' losses. Each has pixels and a label.
export function gradient(theta, drawings) {
  const g = new Float32Array(parameters);
  for (const {pixels, label} of drawings) {
    const x = featuresOf(pixels), p = probabilities(theta, x);
    p[label] -= 1;
    for (let i = 0; i < features; i++) for (let c = 0; c < classes; c++) g[i * classes + c] += x[i] * p[c] / drawings.length;
    for (let c = 0; c < classes; c++) g[features * classes + c] += p[c] / drawings.length;
  }
  return g;
}
