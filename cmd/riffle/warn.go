package main

import (
	"fmt"
	"io"
	"math"

	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/run/train"
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

// warnStuffed says what a task risks whose noise is correlated over rounds and comes from clients, but whose messages
// carry no tokens.
func warnStuffed(w io.Writer, c train.Config) {
	if c.Every > 0 && c.NoiseBy == vecsum.ByClients && !c.Tokens {
		fmt.Fprintln(w, "riffle: warning: clients add the noise, and messages carry no tokens: whoever can fill a round with clients of its own reads the "+
			"sums of earlier rounds without noise; take tokens: true with a registrar, or noise-by: aggregators")
	}
}
