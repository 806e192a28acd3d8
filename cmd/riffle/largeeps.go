package main

import (
	"fmt"
	"io"
	"math"
)

// largeEps is the ε above which a bound promises almost nothing.
const largeEps = 20

// warnLargeEps explains a large ε in words. It is silent for smaller ones, and if no privacy
// was asked for.
func warnLargeEps(w io.Writer, eps float64) {
	if !(eps > largeEps) || math.IsInf(eps, 1) {
		return
	}
	times := fmt.Sprintf("10^%.0f", eps*math.Log10E)
	fmt.Fprintf(w, "riffle: warning: epsilon = %s is above %d and protects next to nobody: by this bound what is seen can be %s times as likely "+
		"with one client's data as without; ask for more clients, fewer rounds or more noise\n", roundUp(eps), largeEps, times)
}
