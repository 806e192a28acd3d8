package model

import "github.com/riffle-dp/riffle/learn/model/internal/kernel"

// cnn is the model that NewCNN makes.
type cnn struct {
	k *kernel.Kernel
	// No window of the second convolution reads the last row and column of the first pool
	// (2·4 + 3 = 11), so only 13×13 and 12×12 values are computed.
	forward1, forward2 *kernel.Walk // outputs: a pixel's sum over taps
	weights1, weights2 *kernel.Walk // gradient of the weights: a tap's sum over pixels
	inputs2            *kernel.Walk // gradient of six pixels of the second layer's input
}

const (
	cnnSide   = 28
	cnnPad    = 3  // SAME: 13·2 + 8 − 28 = 6 on both sides together
	cnnPadded = 32 // the last tap read is at 12·2 + 7 = 31
	cnnConv1  = 13 // side of the first layer's outputs that are used
	cnnPool1  = 12
	cnnConv2  = 5
	cnnBorder = 7 // cnnConv2 with a border of zeros
	cnnPool2  = 4
	cnnFlat   = cnnPool2 * cnnPool2 * 16
	cnnHidden = 32

	cnnB1     = 8 * 8 * 16
	cnnW2     = cnnB1 + 16
	cnnB2     = cnnW2 + 4*4*16*16
	cnnW3     = cnnB2 + 16
	cnnB3     = cnnW3 + cnnFlat*cnnHidden
	cnnW4     = cnnB3 + cnnHidden
	cnnParams = cnnW4 + (cnnHidden+1)*10
)

var cnnLayout = layout{
	{"conv1.weight", []int{8, 8, 1, 16}, 8 * 8, 8 * 8 * 16},
	{"conv1.bias", []int{16}, 0, 0},
	{"conv2.weight", []int{4, 4, 16, 16}, 4 * 4 * 16, 4 * 4 * 16},
	{"conv2.bias", []int{16}, 0, 0},
	{"dense1.weight", []int{cnnFlat, cnnHidden}, cnnFlat, cnnHidden},
	{"dense1.bias", []int{cnnHidden}, 0, 0},
	{"dense2.weight", []int{cnnHidden, 10}, cnnHidden, 10},
	{"dense2.bias", []int{10}, 0, 0},
}

// cnnScratch holds the values of one example, channels last: about 85 kB.
type cnnScratch struct {
	image  [cnnPadded * cnnPadded]float32
	conv1  [cnnConv1 * cnnConv1 * 16]float32 // before ReLU
	pool1  [cnnPool1 * cnnPool1 * 16]float32 // after ReLU
	conv2  [cnnConv2 * cnnConv2 * 16]float32
	pool2  [cnnFlat]float32
	hidden [cnnHidden]float32 // after ReLU
	logits [10]float32        // replaced by the loss's gradient after the loss

	dhidden [cnnHidden]float32
	dpool2  [cnnFlat]float32
	dconv2  [cnnConv2 * cnnConv2 * 16]float32
	dborder [cnnBorder * cnnBorder * 16]float32
	flipped [4 * 4 * 16 * 16]float32
	dpool1  [cnnPool1 * cnnPool1 * 16]float32
	dconv1  [cnnConv1 * cnnConv1 * 16]float32
	zero    [16]float32
}

// grid lists the starts of n × n windows, dy and dx apart.
func grid(n, dy, dx int) []int {
	var out []int
	for y := range n {
		for x := range n {
			out = append(out, y*dy+x*dx)
		}
	}
	return out
}

// NewCNN returns the convolutional network of the papers for 28 × 28 grey images and ten classes,
// with cross-entropy loss:
//
//	conv 16 × 8×8, stride 2, SAME    28×28 → 14×14     1,040 parameters
//	ReLU, max-pool 2×2, stride 1           → 13×13
//	conv 16 × 4×4, stride 2, VALID         →  5×5      4,112
//	ReLU, max-pool 2×2, stride 1           →  4×4
//	dense 32, ReLU                                     8,224
//	dense 10                                             330
//
// These are 13,706 parameters. The papers (Girgis et al., AISTATS 2021, and its successors)
// say 13,170. No choice of paddings, strides, pools and biases of these layers gives that
// number; we keep the layers.
//
// theta holds for each layer the weights, then the biases. Weights are row-major:
// convolutions row, column, input channel, output channel; dense layers input, output, where
// the first one's inputs are row, column, channel.
//
// At a kink (a ReLU at 0, equal corners of a pool) the gradient is the one that frameworks
// take: 0 at 0, the first of equals in reading order.
//
// Logits and gradients are finite even if float32 overflows: ±Inf becomes ±MaxFloat32, and
// NaN becomes 0.
func NewCNN() *Model { return newCNN(kernel.Best()) }

func newCNN(k *kernel.Kernel) *Model {
	m := &cnn{k: k}
	m.forward1 = kernel.NewWalk(kernel.Walk{
		Offsets: grid(cnnConv1, 2*cnnPadded, 2), DstStride: 16, Runs: 8, Length: 8, Step: 1, Stride: cnnPadded})
	m.weights1 = kernel.NewWalk(kernel.Walk{
		Offsets: grid(8, cnnPadded, 1), DstStride: 16,
		Runs: cnnConv1, Length: cnnConv1, Step: 2, Stride: 2 * cnnPadded})
	m.forward2 = kernel.NewWalk(kernel.Walk{
		Offsets: grid(cnnConv2, 2*cnnPool1*16, 2*16), DstStride: 16,
		Runs: 4, Length: 4 * 16, Step: 1, Stride: cnnPool1 * 16})
	var taps []int
	for _, tap := range grid(4, cnnPool1*16, 16) {
		for c := range 16 {
			taps = append(taps, tap+c)
		}
	}
	m.weights2 = kernel.NewWalk(kernel.Walk{
		Offsets: taps, DstStride: 16, Runs: cnnConv2, Length: cnnConv2, Step: 2 * 16, Stride: 2 * cnnPool1 * 16})
	m.inputs2 = kernel.NewWalk(kernel.Walk{
		Offsets: []int{0, 16, 32, 48, 64, 80}, DstStride: 2 * 16,
		Runs: 2, Length: 2 * 16, Step: 1, Stride: cnnBorder * 16})
	return newModel("cnn", cnnSide*cnnSide, 10, cnnLayout, m)
}

func (m *cnn) prepare(s *workspace) { s.cnn = new(cnnScratch) }

func (m *cnn) geometry(float64) (lipschitz, smoothness float64) { panic("model: cnn is not convex") }

func (m *cnn) forward(theta, x, logits []float32, s *workspace) {
	m.scores(theta, x, s.cnn)
	copy(logits, s.cnn.logits[:])
}

// scores leaves the logits in s.
func (m *cnn) scores(theta, x []float32, s *cnnScratch) {
	for y := range cnnSide {
		copy(s.image[(y+cnnPad)*cnnPadded+cnnPad:][:cnnSide], x[y*cnnSide:])
	}
	k := m.k
	k.Walk(m.forward1, s.conv1[:], s.image[:], theta[:cnnB1], theta[cnnB1:])
	k.PoolForward(s.pool1[:], s.conv1[:], cnnPool1, cnnPool1)
	k.Walk(m.forward2, s.conv2[:], s.pool1[:], theta[cnnW2:cnnB2], theta[cnnB2:])
	k.PoolForward(s.pool2[:], s.conv2[:], cnnPool2, cnnPool2)
	k.Dense(s.hidden[:], s.pool2[:], theta[cnnW3:cnnB3], theta[cnnB3:])
	for i, v := range s.hidden {
		s.hidden[i] = max(0, v)
	}
	scores10(theta[cnnW4:], s.hidden[:], &s.logits)
	if !k.Finite(s.logits[:]) {
		saturate(s.logits[:])
	}
}

// output runs the model forward and leaves the gradient of the loss by the logits in
// s.logits.
func (m *cnn) output(theta, x []float32, y float64, s *workspace) (loss float64) {
	m.scores(theta, x, s.cnn)
	return residual(s.cnn.logits[:], int(y), s.prob)
}

// back2 propagates the gradient back to the outputs of the second convolution.
func (m *cnn) back2(theta []float32, s *cnnScratch) {
	for i := range s.dhidden {
		s.dhidden[i] = hiddenGrad(theta[cnnW4:], s.hidden[:], s.logits[:], i)
	}
	m.k.Rows(s.dpool2[:], theta[cnnW3:cnnB3], s.dhidden[:])
	clear(s.dconv2[:])
	m.k.PoolBackward(s.dconv2[:], s.dpool2[:], s.conv2[:], cnnPool2, cnnPool2)
}

// back1 propagates the gradient from the outputs of the second convolution to those of the
// first.
//
// An input pixel (2i + a, 2j + b) meets the taps a, a + 2 of the output rows i, i − 1, and
// likewise in columns. So each of the four (a, b) is a convolution by 2×2 taps at stride 1
// over the outputs with a border of zeros.
func (m *cnn) back1(theta []float32, s *cnnScratch) {
	const row = cnnConv2 * 16
	for y := range cnnConv2 {
		copy(s.dborder[((y+1)*cnnBorder+1)*16:][:row], s.dconv2[y*row:])
	}
	for a := range 2 {
		for b := range 2 {
			w := s.flipped[(2*a+b)*4*256:][:4*256]
			for tap := range 4 {
				from := (a+2-2*(tap/2))*4 + b + 2 - 2*(tap%2)
				m.k.Transpose16(w[tap*256:], theta[cnnW2+from*256:])
			}
			for i := range cnnPool1 / 2 {
				m.k.Walk(m.inputs2, s.dpool1[((2*i+a)*cnnPool1+b)*16:], s.dborder[i*cnnBorder*16:], w, s.zero[:])
			}
		}
	}
	clear(s.dconv1[:])
	m.k.PoolBackward(s.dconv1[:], s.dpool1[:], s.conv1[:], cnnPool1, cnnPool1)
}

func (m *cnn) grad(theta, x []float32, y float64, grad []float32, s *workspace) (loss float64) {
	loss = m.output(theta, x, y, s)
	k, v := m.k, s.cnn
	outer10(v.hidden[:], &v.logits, grad[cnnW4:])
	m.back2(theta, v)
	k.Outer(grad[cnnW3:cnnB3], v.pool2[:], v.dhidden[:])
	copy(grad[cnnB3:cnnW4], v.dhidden[:])
	k.Walk(m.weights2, grad[cnnW2:cnnB2], v.pool1[:], v.dconv2[:], v.zero[:])
	k.Sum16(grad[cnnB2:cnnW3], v.dconv2[:])
	m.back1(theta, v)
	k.Walk(m.weights1, grad[:cnnB1], v.image[:], v.dconv1[:], v.zero[:])
	k.Sum16(grad[cnnB1:cnnW2], v.dconv1[:])
	if !k.Finite(grad) {
		saturate(grad)
	}
	return loss
}

// gradCoord propagates back only to the layer of parameter j, so on average over the
// coordinates it costs little more than scores.
func (m *cnn) gradCoord(theta, x []float32, y float64, j int, s *workspace) (g float32, loss float64) {
	loss = m.output(theta, x, y, s)
	v := s.cnn
	switch {
	case j >= cnnW4:
		i := (j - cnnW4) / 10
		g = v.logits[(j-cnnW4)%10]
		if i < cnnHidden {
			g *= v.hidden[i]
		}
	case j >= cnnW3:
		i := (j - cnnW3) / cnnHidden
		g = hiddenGrad(theta[cnnW4:], v.hidden[:], v.logits[:], (j-cnnW3)%cnnHidden)
		if i < cnnFlat {
			g *= v.pool2[i]
		}
	case j >= cnnW2:
		m.back2(theta, v)
		g = tap(m.weights2, j-cnnW2, v.pool1[:], v.dconv2[:])
	default:
		m.back2(theta, v)
		m.back1(theta, v)
		g = tap(m.weights1, j, v.image[:], v.dconv1[:])
	}
	one := [1]float32{g}
	saturate(one[:])
	return one[0], loss
}

// tap computes one of the walk's sums; without x it sums w alone, which gives the biases.
func tap(g *kernel.Walk, j int, x, w []float32) float32 {
	var sum float32
	t := j % 16
	if j/16 == len(g.Offsets) {
		for ; t < len(w); t += 16 {
			sum += w[t]
		}
		return sum
	}
	x = x[g.Offsets[j/16]:]
	for run := range g.Runs {
		at := run * g.Stride
		for range g.Length {
			sum += x[at] * w[t]
			at += g.Step
			t += 16
		}
	}
	return sum
}
