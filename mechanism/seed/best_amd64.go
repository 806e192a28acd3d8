package seed

import "golang.org/x/sys/cpu"

// best returns the fastest kernel that this processor can run.
func best() kernel {
	if cpu.X86.HasAVX2 {
		return kernel{"avx2", avx2Add, avx2Dot}
	}
	return portable
}

func avx2Add(sum []int64, words []byte) {
	words = words[:8*len(sum)]
	whole := len(sum) &^ 7
	if whole > 0 {
		addAVX2(&sum[0], &words[0], &rows[0], whole/8)
	}
	portableAdd(sum[whole:], words[8*whole:])
}

func avx2Dot(lanes *[8]float64, x []float64, words []byte) {
	_ = words[:8*len(x)]
	dotAVX2(&lanes[0], &x[0], &words[0], &rows[0], len(x)/8)
}
