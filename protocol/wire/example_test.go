package wire_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// A coordinator signs a task. Whoever has its key reads the same task; one changed byte is
// refused, and so is the signature for any other purpose.
func ExampleSign() {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // a real key is random
	public := key.Public().(ed25519.PublicKey)
	task := wire.Task{Name: "digits", Trust: dp.Shuffle, Participation: dp.All, MinReports: 800, Rounds: 20, Delta: 1e-6,
		Mechanism: wire.Mechanism{Name: "privunit", Dim: 1930, Clip: 0.2, ClipMode: "norm", Eps0: 3}}
	signed := wire.Sign(key, wire.LabelTask, wire.Encode(task))

	message, err := wire.Verify(public, wire.LabelTask, signed)
	if err != nil {
		fmt.Println(err)
		return
	}
	same, err := wire.Decode[wire.Task](message)
	fmt.Println(same.Name, wire.Digest(same) == wire.Digest(task), err)

	_, err = wire.Verify(public, wire.LabelEnrolment, signed)
	fmt.Println("as an enrolment:", errors.Is(err, wire.ErrSignature))
	signed[len(signed)-1] ^= 1
	_, err = wire.Verify(public, wire.LabelTask, signed)
	fmt.Println("changed:", errors.Is(err, wire.ErrSignature))
	// Output:
	// digits true <nil>
	// as an enrolment: true
	// changed: true
}
