package model

import (
	"math/rand/v2"
	"testing"
)

// example returns parameters and a feature vector, of which a share is zero.
func example(m *Model, zeros float64, seed uint64) (theta, x []float32) {
	r := rand.New(rand.NewPCG(seed, 1))
	theta = make([]float32, m.Params)
	for i := range theta {
		theta[i] = float32(r.NormFloat64())
	}
	x = make([]float32, m.Inputs)
	for i := range x {
		if r.Float64() >= zeros {
			x[i] = float32(r.NormFloat64() / 10)
		}
	}
	return theta, x
}

func benchmarkGrad(b *testing.B, inputs, classes int, zeros float64) {
	m, err := NewSoftmax(inputs, classes)
	if err != nil {
		b.Fatal(err)
	}
	theta, x := example(m, zeros, 1)
	grad := make([]float32, m.Params)
	s := m.NewScratch()
	b.ReportAllocs()
	for b.Loop() {
		m.Grad(theta, x, 3, grad, s)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gradients/s")
}

func BenchmarkGradHOG(b *testing.B)         { benchmarkGrad(b, 192, 10, 0) }
func BenchmarkGradClassicHOG(b *testing.B)  { benchmarkGrad(b, 441, 10, 0) }
func BenchmarkGradPixels(b *testing.B)      { benchmarkGrad(b, 784, 10, 0.8) }
func BenchmarkGradElevenClass(b *testing.B) { benchmarkGrad(b, 441, 11, 0) }

func BenchmarkForwardHOG(b *testing.B) {
	m, err := NewSoftmax(441, 10)
	if err != nil {
		b.Fatal(err)
	}
	theta, x := example(m, 0, 1)
	logits := make([]float32, 10)
	s := m.NewScratch()
	b.ReportAllocs()
	for b.Loop() {
		m.kind.forward(theta, x, logits, s)
	}
}
