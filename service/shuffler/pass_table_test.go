package shuffler

import (
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// The table of passes knows each client's last pass and no other, also where many begin alike.
func TestTableOfPasses(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range longtest.Pick([]int{1, 2, 3, 10, 40}, []int{1, 2, 3, 10, 40, 100}) {
		var p passes
		last := map[int32]wire.ID{}
		all := map[wire.ID]int32{}
		for step := range 50 * n {
			place := r.Int32N(int32(n))
			pass := wire.ID{0: byte(r.IntN(4)) << 6, 7: byte(step), 6: byte(step >> 8), 8: 1}
			if r.IntN(3) == 0 {
				pass[0], pass[1] = 0xff, 0xff // the table's end, from where it goes on at the front
			}
			if r.IntN(5) == 0 {
				if _, again := last[place]; again {
					pass = last[place]
				}
			}
			if short(pass) == 0 {
				continue
			}
			p.add(pass, place, n)
			last[place], all[pass] = pass, place
			for pass, place := range all {
				found := p.slots[p.at(short(pass))]
				if known := last[place] == pass; known != (found != 0) || known && found != uint32(place)+1 {
					t.Fatalf("%d clients, step %d: pass %x of %d, known %v, is found as %d", n, step, pass, place, known, found)
				}
			}
		}
		used := 0
		for _, s := range p.slots {
			if s != 0 {
				used++
			}
		}
		if used != len(last) {
			t.Errorf("%d clients: %d slots of %d passes", n, used, len(last))
		}
	}
}
