package pine_test

import (
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum/pine"
)

// Two aggregators, who would be two processes, sum the vectors of three clients, one of whom
// changes the leader's share. The key and the sources are fixed for the example only.
func Example() {
	p, err := pine.New(pine.Config{Dim: 2, Bound: 100, Context: "round 1 of the example"})
	if err != nil {
		panic(err)
	}
	key := pine.VerifyKey{1}
	sums := [2][]byte{make([]byte, p.Sizes().Out), make([]byte, p.Sizes().Out)}
	for i, x := range [][]int64{{60, -80}, {7, 3}, {0, 0}} {
		nonce := pine.Nonce{byte(i)}
		public, inputs, err := p.Shard(rng.Replay(1, uint64(i)), nonce, x)
		if err != nil {
			panic(err)
		}
		if i == 2 {
			inputs[0][0]++ // 1 more in the first coordinate
		}
		outs, err := verify(p, key, nonce, public, inputs)
		if errors.Is(err, pine.ErrRefused) {
			fmt.Println("client", i, "is refused")
			continue
		} else if err != nil {
			panic(err)
		}
		for k := range sums {
			if err := p.Add(sums[k], outs[k]); err != nil {
				panic(err)
			}
		}
	}
	fmt.Println(p.Unshard(sums[0], sums[1]))
	// Output:
	// client 2 is refused
	// [67 -77] <nil>
}

// verify is what both aggregators do with a report. Prep shares would travel between them.
func verify(p *pine.Pine, key pine.VerifyKey, nonce pine.Nonce, public []byte, inputs [2][]byte) (outs [2][]byte, err error) {
	var states [2]*pine.State
	var preps [2][]byte
	for k := range states {
		if states[k], preps[k], err = p.PrepInit(key, k, nonce, public, inputs[k]); err != nil {
			return outs, err
		}
	}
	message, err := p.PrepMessage(preps[0], preps[1])
	if err != nil {
		return outs, err
	}
	for k := range states {
		if outs[k], err = p.PrepNext(states[k], message); err != nil {
			return outs, err
		}
	}
	return outs, nil
}
